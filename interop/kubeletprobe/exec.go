package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	osexec "os/exec"
	"strings"
	"syscall"
	"time"

	remote "k8s.io/cri-client/pkg"
	"k8s.io/utils/exec"
)

// localCommand stands for a command in a container, and for the kubelet's client of the container runtime: all output
// at the end, standard error after standard output, and the same errors.
type localCommand struct {
	words   []string
	timeout time.Duration
	to      io.Writer
}

var _ exec.Cmd = &localCommand{}

func (c *localCommand) SetStdout(to io.Writer) { c.to = to }
func (c *localCommand) SetStderr(to io.Writer) { c.to = to }

// Start runs the command to its end, as the kubelet's does.
func (c *localCommand) Start() error {
	output, err := c.CombinedOutput()
	// What does not fit is cut off.
	_, _ = c.to.Write(output)
	return err
}

func (c *localCommand) Wait() error { return nil }

func (c *localCommand) CombinedOutput() ([]byte, error) {
	if len(c.words) == 0 {
		return nil, errors.New("no command")
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	command := osexec.CommandContext(ctx, c.words[0], c.words[1:]...)
	command.Stdout, command.Stderr = &stdout, &stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	err := command.Run()
	line := strings.Join(c.words, " ")
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %q timed out after %s", remote.ErrCommandTimedOut, line, c.timeout)
	}
	output := append(stdout.Bytes(), stderr.Bytes()...)
	var exit *osexec.ExitError
	if errors.As(err, &exit) {
		code := exit.ExitCode()
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			code = 128 + int(status.Signal())
		}
		err = exec.CodeExitError{Err: fmt.Errorf("command '%s' exited with %d: %s", line, code, stderr.Bytes()), Code: code}
	}
	return output, err
}

// The kubelet's probe calls none of these.

func (c *localCommand) Run() error                         { return errors.ErrUnsupported }
func (c *localCommand) Output() ([]byte, error)            { return nil, errors.ErrUnsupported }
func (c *localCommand) SetDir(string)                      {}
func (c *localCommand) SetStdin(io.Reader)                 {}
func (c *localCommand) SetEnv([]string)                    {}
func (c *localCommand) StdoutPipe() (io.ReadCloser, error) { return nil, errors.ErrUnsupported }
func (c *localCommand) StderrPipe() (io.ReadCloser, error) { return nil, errors.ErrUnsupported }
func (c *localCommand) Stop()                              {}
