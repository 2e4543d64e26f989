package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// load is what a measurement does.
type load struct {
	kind        string
	address     string
	probes      int
	concurrency int
	path        string
	timeout     time.Duration
}

// numbers is the line that a measurement prints.
type numbers struct {
	Kind   string `json:"kind"`
	Probes int    `json:"probes"`
	// Unsuccessful is the number of probes whose result was not success.
	Unsuccessful int64   `json:"unsuccessful"`
	Seconds      float64 `json:"seconds"`
	PerSecond    float64 `json:"perSecond"`
	// CPUSeconds is what this process used, of user and system time.
	CPUSeconds float64 `json:"cpuSeconds"`
	// TimeWait is the number of sockets to the address in TIME_WAIT that were not there before, of either side.
	TimeWait int `json:"timeWait"`
}

func (l load) run(to io.Writer) error {
	if l.kind != "http" && l.kind != "tcp" {
		return fmt.Errorf("--bench %s: http or tcp", l.kind)
	}
	if l.probes < 1 || l.concurrency < 1 {
		return fmt.Errorf("--probes %d --concurrency %d: at least one of each", l.probes, l.concurrency)
	}
	host, port, err := net.SplitHostPort(l.address)
	if err != nil {
		return fmt.Errorf("--address: %w", err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("--address: %w", err)
	}
	asked := question{
		Kind:          l.kind,
		PodIP:         host,
		Port:          intstr.FromInt32(int32(number)),
		Path:          l.path,
		TimeoutMillis: l.timeout.Milliseconds(),
	}
	before, err := timeWait(number)
	if err != nil {
		return err
	}
	began := time.Now()
	unsuccessful := l.repeat(asked)
	seconds := time.Since(began).Seconds()
	cpu, err := cpuSeconds()
	if err != nil {
		return err
	}
	after, err := timeWait(number)
	if err != nil {
		return err
	}
	return json.NewEncoder(to).Encode(numbers{
		Kind:         l.kind,
		Probes:       l.probes,
		Unsuccessful: unsuccessful,
		Seconds:      seconds,
		PerSecond:    float64(l.probes) / seconds,
		CPUSeconds:   cpu,
		TimeWait:     after - before,
	})
}

// repeat asks as often as wanted and returns how often the result was not success.
func (l load) repeat(asked question) int64 {
	probers := newProbers()
	var begun, unsuccessful atomic.Int64
	var asking sync.WaitGroup
	for range l.concurrency {
		asking.Go(func() {
			for begun.Add(1) <= int64(l.probes) {
				if probers.ask(asked).Result != "success" {
					unsuccessful.Add(1)
				}
			}
		})
	}
	asking.Wait()
	return unsuccessful.Load()
}

func cpuSeconds() (float64, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, err
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds(), nil
}

// timeWait counts the sockets in TIME_WAIT with the port on either side, by proc_net_tcp(5).
func timeWait(port uint64) (int, error) {
	const stateTimeWait = "06"
	count := 0
	suffix := fmt.Sprintf(":%04X", port)
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		for _, line := range strings.Split(string(text), "\n") {
			fields := strings.Fields(line)
			if len(fields) < 4 || fields[3] != stateTimeWait {
				continue
			}
			if strings.HasSuffix(fields[1], suffix) || strings.HasSuffix(fields[2], suffix) {
				count++
			}
		}
	}
	return count, nil
}
