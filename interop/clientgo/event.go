package main

import (
	"encoding/json"
	"io"
	"sync"

	"golang.org/x/sys/unix"
)

// event is a line of standard output.
type event struct {
	// Event is what happened:
	//
	//	started   this candidate leads
	//	stopped   it does not any more
	//	leader    it sees another leader, named in Leader; "" when the Lease was released
	//	requests  the number of API requests sent so far
	//	exit      the process ends
	Event string `json:"event"`
	// Identity of the candidate.
	Identity string `json:"identity"`
	// Lease is NAMESPACE/NAME; empty for exit.
	Lease string `json:"lease,omitempty"`
	// Leader is who leads, for leader.
	Leader string `json:"leader"`
	// Requests is a number, for requests.
	Requests uint64 `json:"requests,omitempty"`
	// AtBootNS is the reading of CLOCK_BOOTTIME, in nanoseconds, when the line was made.
	AtBootNS int64 `json:"at_boot_ns"`
}

// printer writes events, one at a time.
type printer struct {
	mutex    sync.Mutex
	to       io.Writer
	identity string
}

// print adds identity and time. Times grow from line to line.
func (p *printer) print(what event) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	what.Identity = p.identity
	what.AtBootNS = bootTime()
	line, err := json.Marshal(what)
	if err != nil {
		// Strings and numbers can always be marshalled.
		panic(err)
	}
	// Nobody to tell when nobody reads: a closed pipe on standard output ends a Go process by SIGPIPE.
	_, _ = p.to.Write(append(line, '\n'))
}

// bootTime is the time since boot, the time asleep included.
func bootTime() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		// Linux has had it since 2.6.39.
		panic(err)
	}
	return now.Nano()
}
