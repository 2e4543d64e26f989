package main

import (
	"fmt"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/probe"
	execprobe "k8s.io/kubernetes/pkg/probe/exec"
	grpcprobe "k8s.io/kubernetes/pkg/probe/grpc"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
	tcpprobe "k8s.io/kubernetes/pkg/probe/tcp"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// question is a line of standard input.
type question struct {
	// ID comes back with the answer.
	ID int `json:"id"`
	// Kind is http, tcp, grpc or exec.
	Kind string `json:"kind"`
	// PodIP is asked unless Host says otherwise.
	PodIP string `json:"podIP"`
	// Host of the probe; not for grpc.
	Host string `json:"host"`
	// Port is a number or a string, as in a manifest. A number for grpc.
	Port intstr.IntOrString `json:"port"`
	// Ports of the container, by name.
	Ports map[string]int32 `json:"ports"`
	// Scheme, Path and Headers (pairs of name and value) of http.
	Scheme  string      `json:"scheme"`
	Path    string      `json:"path"`
	Headers [][2]string `json:"headers"`
	// Service of grpc.
	Service string `json:"service"`
	// Command of exec, run on this machine, and Env (pairs of name and value), which only the command's words see.
	Command []string    `json:"command"`
	Env     [][2]string `json:"env"`
	// TimeoutMillis is the probe's timeout.
	TimeoutMillis int64 `json:"timeoutMillis"`
}

// answer is a line of standard output: what the kubelet's handler returned, and after how many milliseconds.
type answer struct {
	ID     int    `json:"id"`
	Result string `json:"result"`
	Output string `json:"output"`
	Error  string `json:"error"`
	Millis int64  `json:"millis"`
}

// probers are made once for each kubelet, and so here.
type probers struct {
	exec execprobe.Prober
	http httpprobe.Prober
	tcp  tcpprobe.Prober
	grpc grpcprobe.Prober
}

func newProbers() probers {
	const followNonLocalRedirects = false
	return probers{
		exec: execprobe.New(),
		http: httpprobe.New(followNonLocalRedirects),
		tcp:  tcpprobe.New(),
		grpc: grpcprobe.New(),
	}
}

func (p probers) ask(asked question) answer {
	began := time.Now()
	result, output, err := p.probe(asked)
	given := answer{
		ID:     asked.ID,
		Result: string(result),
		Output: output,
		Millis: time.Since(began).Milliseconds(),
	}
	if err != nil {
		given.Error = err.Error()
	}
	return given
}

func (p probers) probe(asked question) (probe.Result, string, error) {
	timeout := time.Duration(asked.TimeoutMillis) * time.Millisecond
	host := asked.Host
	if host == "" {
		host = asked.PodIP
	}
	switch asked.Kind {
	case "http":
		request, err := asked.request()
		if err != nil {
			return probe.Unknown, "", err
		}
		return p.http.Probe(request, timeout)
	case "tcp":
		port, err := probe.ResolveContainerPort(asked.Port, asked.container())
		if err != nil {
			return probe.Unknown, "", err
		}
		return p.tcp.Probe(host, port, timeout)
	case "grpc":
		return p.grpc.Probe(asked.PodIP, asked.Service, asked.Port.IntValue(), timeout)
	case "exec":
		env := make(map[string]string)
		for _, pair := range asked.Env {
			env[pair[0]] = pair[1]
		}
		mapping := expansion.MappingFuncFor(env)
		var words []string
		for _, word := range asked.Command {
			words = append(words, expansion.Expand(word, mapping))
		}
		return p.exec.Probe(&localCommand{words: words, timeout: timeout})
	default:
		return probe.Unknown, "", fmt.Errorf("kubeletprobe: no such kind: %q", asked.Kind)
	}
}

// request is the kubelet's, to the last header.
func (asked question) request() (*http.Request, error) {
	var headers []v1.HTTPHeader
	for _, pair := range asked.Headers {
		headers = append(headers, v1.HTTPHeader{Name: pair[0], Value: pair[1]})
	}
	action := &v1.HTTPGetAction{
		Scheme:      v1.URIScheme(asked.Scheme),
		Host:        asked.Host,
		Port:        asked.Port,
		Path:        asked.Path,
		HTTPHeaders: headers,
	}
	return httpprobe.NewRequestForHTTPGetAction(action, asked.container(), asked.PodIP, "probe")
}

func (asked question) container() *v1.Container {
	container := &v1.Container{Name: "container"}
	for name, port := range asked.Ports {
		container.Ports = append(container.Ports, v1.ContainerPort{Name: name, ContainerPort: port})
	}
	return container
}
