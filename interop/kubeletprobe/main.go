// Kubeletprobe asks with the kubelet's own probe code: the peer that Evenkeel's handlers are compared with.
//
//	kubeletprobe
//	kubeletprobe --bench http|tcp --address HOST:PORT [--probes N] [--concurrency C] [--path /] [--timeout 1s]
//
// Without --bench it reads questions from standard input, one JSON object a line (see question), asks all of them at
// once, and prints an answer for each (see answer) as soon as it is there; they are told apart by their id. It ends when
// the input does and everything is answered. With --bench it prints one line of numbers, see numbers.
//
// Logs go to standard error. Exit codes: 0 done, 2 the command line or a question cannot be used.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	exitDone  = 0
	exitUsage = 2
)

// longestQuestion is the length of a line of input, in bytes.
const longestQuestion = 16 << 20

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	var load load
	flags := flag.NewFlagSet("kubeletprobe", flag.ContinueOnError)
	flags.StringVar(&load.kind, "bench", "", "measure `http` or tcp probes instead of answering questions")
	flags.StringVar(&load.address, "address", "", "whom to ask, `HOST:PORT`")
	flags.IntVar(&load.probes, "probes", 10000, "how many probes")
	flags.IntVar(&load.concurrency, "concurrency", 16, "how many at once")
	flags.StringVar(&load.path, "path", "/", "path of HTTP probes")
	flags.DurationVar(&load.timeout, "timeout", time.Second, "timeout of a probe")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return exitDone
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("there are no arguments besides flags: %q", flags.Args())
	}
	if err == nil {
		if load.kind == "" {
			err = converse(os.Stdin, os.Stdout)
		} else {
			err = load.run(os.Stdout)
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "kubeletprobe: %v\n", err)
		return exitUsage
	}
	return exitDone
}

// converse answers questions until there are no more.
func converse(from io.Reader, to io.Writer) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, longestQuestion)
	probers := newProbers()
	var asking sync.WaitGroup
	defer asking.Wait()
	var printing sync.Mutex
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return fmt.Errorf("cannot read the question %q: %w", lines.Text(), err)
		}
		asking.Go(func() {
			line, err := json.Marshal(probers.ask(asked))
			if err != nil {
				// Strings and numbers can always be marshalled.
				panic(err)
			}
			printing.Lock()
			defer printing.Unlock()
			// Nobody to tell when nobody reads: a closed pipe on standard output ends a Go process by SIGPIPE.
			_, _ = to.Write(append(line, '\n'))
		})
	}
	return lines.Err()
}
