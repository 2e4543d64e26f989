// Kubernetes is a control plane of Kubernetes' own code in one program: Evenkeel is tried on it and
// compared with it.
//
//	kubernetes [--dir DIR] up [--port N] [--flag COMPONENT=--NAME=VALUE]...
//	kubernetes [--dir DIR] stop|start|kill COMPONENT...
//	kubernetes [--dir DIR] keys
//	kubernetes COMPONENT [FLAGS]
//
// `up` starts one process per component on loopback, prints where the kubeconfig is as soon as everything is ready, and
// ends with SIGINT or SIGTERM, and every component with it. The second form tells a running `up` to end components (by
// SIGTERM or SIGKILL) or to start them again; it returns when they have ended, or are ready. `keys` prints the key of every
// object in etcd but Events. The last form is the component itself, with the flags, logs and exit codes of the released program of that name.
//
// Logs go to files in DIR. Exit codes: 0 done, 1 it failed later, 2 the command line cannot be used.
package main

import (
	"fmt"
	"os"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

const (
	etcd              = "etcd"
	kubeAPIServer     = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	kubeScheduler     = "kube-scheduler"
)

// components lists them in the order in which they are started; they end in the opposite order.
var components = []string{etcd, kubeAPIServer, controllerManager, kubeScheduler}

var usage = "usage: kubernetes [--dir DIR] up|stop|start|kill|keys|" + strings.Join(components, "|") + " [FLAGS]; see README.md"

// dir is the directory of the cluster: state, keys, logs, kubeconfig.
var dir = ".evenkeel/real"

func main() {
	arguments := os.Args[1:]
	if len(arguments) > 1 && arguments[0] == "--dir" {
		dir, arguments = arguments[1], arguments[2:]
	}
	if len(arguments) == 0 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(exitUsage)
	}
	command := arguments[0]
	// A component reads the arguments by itself, and names itself by the first one.
	os.Args = arguments
	switch command {
	case etcd:
		etcdmain.Main(os.Args)
	case kubeAPIServer:
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case controllerManager:
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	case kubeScheduler:
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "keys":
		os.Exit(keys())
	case "up":
		os.Exit(up(arguments[1:]))
	case "stop", "start", "kill":
		os.Exit(tell(command, arguments[1:]))
	default:
		fmt.Fprintf(os.Stderr, "kubernetes: there is no command %q; %s\n", command, usage)
		os.Exit(exitUsage)
	}
}
