package main

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// candidate campaigns for one Lease.
type candidate struct {
	lock     resourcelock.Interface
	config   leaderelection.LeaderElectionConfig
	out      *printer
	requests *atomic.Uint64
}

// newCandidate gives each candidate a client of its own, made as client-go makes it for its locks: requests time out
// after half the renew deadline. Connections are shared within the process. A configuration that client-go refuses is
// refused here, in its words.
func newCandidate(opts options, name string, shared *rest.Config, out *printer) (*candidate, error) {
	requests := new(atomic.Uint64)
	config := rest.CopyConfig(shared)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return counter{next: next, requests: requests}
	})
	identity := resourcelock.ResourceLockConfig{Identity: opts.identity}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, opts.namespace, name, identity,
		config, opts.renewDeadline)
	if err != nil {
		return nil, err
	}
	c := &candidate{
		lock:     lock,
		out:      out,
		requests: requests,
		config: leaderelection.LeaderElectionConfig{
			Lock:            lock,
			Name:            name,
			LeaseDuration:   opts.leaseDuration,
			RenewDeadline:   opts.renewDeadline,
			RetryPeriod:     opts.retryPeriod,
			ReleaseOnCancel: opts.release,
		},
	}
	if _, err := c.elector(); err != nil {
		return nil, err
	}
	return c, nil
}

// run campaigns until ctx is done, or with once until the first loss. It begins after delay.
func (c *candidate) run(ctx context.Context, delay time.Duration, once bool) {
	select {
	case <-ctx.Done():
	case <-time.After(delay):
	}
	for ctx.Err() == nil {
		elector, err := c.elector()
		if err != nil {
			// newCandidate has made one of the same configuration.
			panic(err)
		}
		elector.Run(ctx)
		if once {
			return
		}
	}
}

// elector makes an elector for one term, which tells what happens on standard output.
func (c *candidate) elector() (*leaderelection.LeaderElector, error) {
	var mutex sync.Mutex
	started, ended := false, false
	config := c.config
	config.Callbacks = leaderelection.LeaderCallbacks{
		// Runs in a goroutine of its own, which may be late: then the term is over before it was told of.
		OnStartedLeading: func(context.Context) {
			mutex.Lock()
			defer mutex.Unlock()
			if !ended {
				started = true
				c.tell(event{Event: "started"})
			}
		},
		// Runs at the end of a candidature also if it never led.
		OnStoppedLeading: func() {
			mutex.Lock()
			defer mutex.Unlock()
			ended = true
			if started {
				c.tell(event{Event: "stopped"})
			}
		},
		OnNewLeader: func(leader string) {
			c.tell(event{Event: "leader", Leader: leader})
		},
	}
	return leaderelection.NewLeaderElector(config)
}

func (c *candidate) tellRequests() {
	c.tell(event{Event: "requests", Requests: c.requests.Load()})
}

func (c *candidate) tell(what event) {
	what.Lease = c.lock.Describe()
	c.out.print(what)
}

// counter counts requests.
type counter struct {
	next     http.RoundTripper
	requests *atomic.Uint64
}

func (c counter) RoundTrip(request *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return c.next.RoundTrip(request)
}

// WrappedRoundTripper lets client-go find the transport below, to cancel requests there.
func (c counter) WrappedRoundTripper() http.RoundTripper {
	return c.next
}
