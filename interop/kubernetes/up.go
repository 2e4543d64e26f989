package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// startWithin is what a component gets to become ready; on two busy cores the first start takes a minute.
	startWithin = 4 * time.Minute
	// stopWithin is what it gets to end after SIGTERM, as a pod does. Then it is killed.
	stopWithin = 30 * time.Second
	// A component that ends by itself is started again as a kubelet does with a static pod: at once the first time,
	// later with a pause.
	restartPause = 10 * time.Second
	// pollEvery is how often readiness is asked for.
	pollEvery = 100 * time.Millisecond
)

// componentFlags collects --flag COMPONENT=--NAME=VALUE.
type componentFlags map[string][]string

func (f componentFlags) String() string { return "" }

func (f componentFlags) Set(text string) error {
	component, value, _ := strings.Cut(text, "=")
	if !slices.Contains(components, component) || !strings.HasPrefix(value, "--") {
		return fmt.Errorf("want COMPONENT=--NAME=VALUE with one of %s", strings.Join(components, ", "))
	}
	f[component] = append(f[component], value)
	return nil
}

func up(arguments []string) int {
	added := componentFlags{}
	flags := flag.NewFlagSet("kubernetes up", flag.ContinueOnError)
	port := flags.Int("port", 0, "port of the API server on 127.0.0.1; 0 takes that of the last time, or a free one")
	flags.Var(added, "flag", "a further flag of a component, `COMPONENT=--NAME=VALUE`; may be repeated")
	if code, done := parse(flags, arguments); done {
		return code
	}
	if flags.NArg() > 0 {
		return refuse(fmt.Errorf("there are no arguments besides flags: %q", flags.Args()))
	}
	// The kernel ends a component with the thread that started it: so none is left when this process is killed.
	runtime.LockOSThread()
	signals, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return refuse(err)
	}
	lock, err := claim(dir)
	if err != nil {
		return refuse(err)
	}
	defer lock.Close()
	plane, err := prepare(dir, *port, added)
	if err != nil {
		return refuse(err)
	}
	orders, err := listen(plane)
	if err != nil {
		return refuse(err)
	}
	defer orders.Close()
	s := supervisor{plane: plane, processes: map[string]*process{}, ended: make(chan *process)}
	defer s.stop(components)
	if err := s.start(signals, components); err != nil {
		if signals.Err() != nil {
			return exitDone
		}
		return fail(err)
	}
	fmt.Printf("ready: %s\n", plane.kubeconfig())
	s.serve(signals, orders)
	return exitDone
}

// claim makes sure that nobody else runs a control plane in a directory.
func claim(dir string) (*os.File, error) {
	file, err := os.OpenFile(dir+"/lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("a control plane runs in %s already; stop it, or choose another directory with --dir", dir)
	}
	return file, nil
}

// process of a component.
type process struct {
	component string
	command   *exec.Cmd
	log       *os.File
	since     time.Time
	// wanted is whether it is to run: an end is then none that somebody asked for.
	wanted bool
	// waiting ends when it has ended.
	waiting chan struct{}
}

// supervisor of the components. One goroutine uses it.
type supervisor struct {
	plane     *plane
	processes map[string]*process
	ended     chan *process
}

// serve does what orders say, and starts again what ends by itself, until it is told to end.
func (s *supervisor) serve(ctx context.Context, orders *orders) {
	due := make(chan string)
	for {
		select {
		case <-ctx.Done():
			return
		case order := <-orders.queue:
			order.done <- s.obey(ctx, order)
		case process := <-s.ended:
			if !process.wanted || s.processes[process.component] != process {
				continue
			}
			pause := time.Duration(0)
			if time.Since(process.since) < time.Minute {
				pause = restartPause
			}
			fmt.Fprintf(os.Stderr, "kubernetes: %s ended (%s), and is started again in %s; its log is %s\n",
				process.component, process.command.ProcessState, pause, process.log.Name())
			time.AfterFunc(pause, func() { due <- process.component })
		case component := <-due:
			if process := s.processes[component]; process == nil || !process.wanted || !process.isOver() {
				continue
			}
			if err := s.spawn(component); err != nil {
				fmt.Fprintf(os.Stderr, "kubernetes: %v\n", err)
			}
		}
	}
}

func (s *supervisor) obey(ctx context.Context, order *order) error {
	switch order.Verb {
	case "start":
		return s.start(ctx, order.Components)
	case "stop":
		s.stop(order.Components)
	case "kill":
		s.kill(order.Components)
	}
	return nil
}

// start starts what does not run, in the order of the components, and waits until each is ready.
func (s *supervisor) start(ctx context.Context, wanted []string) error {
	for _, component := range components {
		if !slices.Contains(wanted, component) {
			continue
		}
		if process := s.processes[component]; process == nil || process.isOver() {
			if err := s.spawn(component); err != nil {
				return err
			}
		}
		if err := s.awaitReady(ctx, s.processes[component]); err != nil {
			return err
		}
	}
	return nil
}

func (s *supervisor) spawn(component string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(s.plane.log(component), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	command := exec.Command(program, s.plane.arguments(component)...)
	command.Dir = s.plane.dir
	command.Stdout, command.Stderr = log, log
	// A group of its own, so that Ctrl-C reaches this process alone, which ends the others in order.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		log.Close()
		return fmt.Errorf("cannot start %s: %w", component, err)
	}
	process := &process{component, command, log, time.Now(), true, make(chan struct{})}
	s.processes[component] = process
	go func() {
		// How it ended is in ProcessState.
		_ = command.Wait()
		log.Close()
		close(process.waiting)
		s.ended <- process
	}()
	return nil
}

func (s *supervisor) awaitReady(ctx context.Context, process *process) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		err := s.plane.isReady(ctx, process.component)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready within %s: %w; its log is %s", process.component, startWithin, err, process.log.Name())
		case <-process.waiting:
			return fmt.Errorf("%s ended (%s); its log is %s", process.component, process.command.ProcessState, process.log.Name())
		case <-time.After(pollEvery):
		}
	}
}

// stop ends components in order, the last one first, and waits for each.
func (s *supervisor) stop(wanted []string) {
	for _, component := range slices.Backward(components) {
		if process := s.processes[component]; process != nil && slices.Contains(wanted, component) {
			process.end(syscall.SIGTERM)
			select {
			case <-process.waiting:
			case <-time.After(stopWithin):
				process.end(syscall.SIGKILL)
				<-process.waiting
			}
		}
	}
}

// kill ends components at once, as a machine that loses its power does.
func (s *supervisor) kill(wanted []string) {
	for _, component := range wanted {
		if process := s.processes[component]; process != nil {
			process.end(syscall.SIGKILL)
		}
	}
	for _, component := range wanted {
		if process := s.processes[component]; process != nil {
			<-process.waiting
		}
	}
}

func (p *process) end(signal syscall.Signal) {
	p.wanted = false
	// One that has ended already cannot be told.
	_ = p.command.Process.Signal(signal)
}

func (p *process) isOver() bool {
	select {
	case <-p.waiting:
		return true
	default:
		return false
	}
}

// parse reads flags; done is whether there is nothing more to do.
func parse(flags *flag.FlagSet, arguments []string) (code int, done bool) {
	switch err := flags.Parse(arguments); {
	case errors.Is(err, flag.ErrHelp):
		return exitDone, true
	case err != nil:
		return exitUsage, true
	}
	return 0, false
}

// refuse reports what another command line would mend.
func refuse(err error) int {
	fmt.Fprintf(os.Stderr, "kubernetes: %v\n", err)
	return exitUsage
}

func fail(err error) int {
	fmt.Fprintf(os.Stderr, "kubernetes: %v\n", err)
	return exitFailed
}
