package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// order is what a running `up` is told: one JSON object on a line, answered by one reply.
type order struct {
	Verb       string   `json:"verb"`
	Components []string `json:"components"`
	// done takes how it went.
	done chan error
}

type reply struct {
	Error string `json:"error,omitempty"`
}

// orders takes them on a socket in the directory, which only its owner may open.
type orders struct {
	listener net.Listener
	queue    chan *order
}

func socket(dir string) string { return filepath.Join(dir, "control.sock") }

func listen(p *plane) (*orders, error) {
	path := socket(p.dir)
	// Left by one that was killed: the directory is claimed, so nobody listens.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("%w; choose a shorter or another directory with --dir", err)
	}
	o := &orders{listener, make(chan *order)}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go o.take(connection)
		}
	}()
	return o, nil
}

func (o *orders) Close() error { return o.listener.Close() }

func (o *orders) take(connection net.Conn) {
	defer connection.Close()
	line, err := bufio.NewReader(connection).ReadBytes('\n')
	if err != nil {
		return
	}
	order := &order{done: make(chan error, 1)}
	if err = json.Unmarshal(line, order); err == nil {
		o.queue <- order
		err = <-order.done
	}
	var answer reply
	if err != nil {
		answer.Error = err.Error()
	}
	// The client may have left.
	_ = json.NewEncoder(connection).Encode(answer)
}

// give gives an order and waits until it was done.
func give(dir string, order order) error {
	connection, err := net.Dial("unix", socket(dir))
	if err != nil {
		return usageError{fmt.Errorf("no control plane runs in %s (%w); start one with `kubernetes up`", dir, err)}
	}
	defer connection.Close()
	if err := json.NewEncoder(connection).Encode(order); err != nil {
		return err
	}
	var answer reply
	if err := json.NewDecoder(connection).Decode(&answer); err != nil {
		return fmt.Errorf("the control plane ended meanwhile: %w", err)
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}

// usageError is one that another command line would mend.
type usageError struct{ error }

func tell(verb string, named []string) int {
	for _, component := range named {
		if !slices.Contains(components, component) {
			return refuse(fmt.Errorf("there is no component %q; there are %s", component, strings.Join(components, ", ")))
		}
	}
	if len(named) == 0 {
		return refuse(fmt.Errorf("name a component: %s", strings.Join(components, ", ")))
	}
	err := give(dir, order{Verb: verb, Components: named})
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usageError{}):
		return refuse(err)
	default:
		return fail(err)
	}
}
