// Clientgo is a candidate on client-go's own leader election, the peer that Evenkeel's elector is tested against and
// measured beside.
//
//	clientgo --kubeconfig FILE --namespace NS --name NAME --identity ID
//	         [--lease-duration 15s] [--renew-deadline 10s] [--retry-period 2s]
//	         [--release] [--once] [--count N] [--requests] [--tied]
//
// It campaigns for the Lease NS/NAME until SIGTERM or SIGINT, also after a loss: then with a new elector that remembers
// nothing, as a restarted process would. With --once it ends at the first loss, as Kubernetes' own components do. With
// --count N it runs N independent elections, on the Leases NAME-0 to NAME-(N-1), begun evenly over one retry period, so
// that a kill meets them at all points of their rounds. With --tied it ends when its standard input is closed, so that
// it does not outlive a test that was killed.
//
// Standard output has one JSON object a line; see event. SIGUSR1 asks for one line per Lease with the number of API
// requests sent so far; --requests prints them at the end. Logs go to standard error.
//
// Exit codes: 0 told to stop, 1 lost the Lease under --once, 2 the command line or the kubeconfig cannot be used.
//
// Requests are JSON, so that they can be read on their way.
//
//	clientgo objects [--seed 1] [--count 3]
//
// prints random objects of every kind instead, in JSON and in protobuf; see objects.
//
//	clientgo informer --kubeconfig FILE [--namespace default] [--media application/json]
//
// prints what an informer tells of ConfigMaps; see informer.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Exit codes.
const (
	exitStopped = 0
	exitLost    = 1
	exitUsage   = 2
)

// options is the command line.
type options struct {
	kubeconfig    string
	namespace     string
	name          string
	identity      string
	leaseDuration time.Duration
	renewDeadline time.Duration
	retryPeriod   time.Duration
	release       bool
	once          bool
	count         int
	requests      bool
	tied          bool
}

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) > 0 && args[0] == "objects" {
		return objects(args[1:])
	}
	if len(args) > 0 && args[0] == "informer" {
		return informer(args[1:])
	}
	opts, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return exitStopped
	}
	if err != nil {
		return refuse(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", opts.kubeconfig)
	if err != nil {
		return refuse(fmt.Errorf("--kubeconfig %s: %w", opts.kubeconfig, err))
	}
	config.ContentType = "application/json"
	config.AcceptContentTypes = "application/json"

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if opts.tied {
		go func() {
			// An error is an end as well.
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
	}
	out := &printer{to: os.Stdout, identity: opts.identity}
	candidates, err := candidates(opts, config, out)
	if err != nil {
		return refuse(err)
	}
	return campaign(ctx, opts, candidates, out)
}

// campaign runs all candidates to their end.
func campaign(ctx context.Context, opts options, candidates []*candidate, out *printer) int {
	tell := make(chan os.Signal, 1)
	signal.Notify(tell, syscall.SIGUSR1)
	go func() {
		for range tell {
			for _, c := range candidates {
				c.tellRequests()
			}
		}
	}()
	var running sync.WaitGroup
	for i, c := range candidates {
		delay := opts.retryPeriod * time.Duration(i) / time.Duration(len(candidates))
		running.Go(func() { c.run(ctx, delay, opts.once) })
	}
	running.Wait()
	if opts.requests {
		for _, c := range candidates {
			c.tellRequests()
		}
	}
	out.print(event{Event: "exit"})
	if ctx.Err() == nil {
		return exitLost
	}
	return exitStopped
}

// candidates makes one per Lease.
func candidates(opts options, config *rest.Config, out *printer) ([]*candidate, error) {
	made := make([]*candidate, 0, opts.count)
	for i := range opts.count {
		name := opts.name
		if opts.count > 1 {
			name = fmt.Sprintf("%s-%d", opts.name, i)
		}
		c, err := newCandidate(opts, name, config, out)
		if err != nil {
			return nil, err
		}
		made = append(made, c)
	}
	return made, nil
}

func parse(args []string) (options, error) {
	var opts options
	flags := flag.NewFlagSet("clientgo", flag.ContinueOnError)
	flags.StringVar(&opts.kubeconfig, "kubeconfig", "", "kubeconfig `file` of the API server")
	flags.StringVar(&opts.namespace, "namespace", "default", "namespace of the Lease")
	flags.StringVar(&opts.name, "name", "", "name of the Lease")
	flags.StringVar(&opts.identity, "identity", "", "identity of this candidate")
	flags.DurationVar(&opts.leaseDuration, "lease-duration", 15*time.Second, "how long others leave an unrenewed Lease alone")
	flags.DurationVar(&opts.renewDeadline, "renew-deadline", 10*time.Second, "how long a leader tries to renew")
	flags.DurationVar(&opts.retryPeriod, "retry-period", 2*time.Second, "time between attempts")
	flags.BoolVar(&opts.release, "release", false, "give the Lease back when told to stop")
	flags.BoolVar(&opts.once, "once", false, "end at the first loss")
	flags.IntVar(&opts.count, "count", 1, "`number` of elections")
	flags.BoolVar(&opts.requests, "requests", false, "print the number of API requests at the end")
	flags.BoolVar(&opts.tied, "tied", false, "end when standard input is closed")
	if err := flags.Parse(args); err != nil {
		return opts, err
	}
	switch {
	case flags.NArg() > 0:
		return opts, fmt.Errorf("unexpected argument %q: everything is a flag", flags.Arg(0))
	case opts.kubeconfig == "":
		return opts, errors.New("--kubeconfig is missing: name the file that says where the API server is")
	case opts.name == "":
		return opts, errors.New("--name is missing: name the Lease")
	case opts.count < 1:
		return opts, fmt.Errorf("--count %d: there must be at least one election", opts.count)
	}
	return opts, nil
}

func refuse(err error) int {
	fmt.Fprintln(os.Stderr, "clientgo:", err)
	return exitUsage
}
