package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// clusterName is the name of the cluster and of the context in every kubeconfig.
	clusterName = "evenkeel-real"
	// admin is the user of the kubeconfig that is handed out.
	admin = "kubernetes-admin"
	// serviceRange holds the addresses of Services; nothing routes them.
	serviceRange = "10.96.0.0/16"
)

// serviceAddress is that of Service default/kubernetes: the first of serviceRange.
var serviceAddress = net.IPv4(10, 96, 0, 1)

// ports of a control plane, all on 127.0.0.1.
type ports struct {
	Etcd, EtcdPeer, APIServer, ControllerManager, Scheduler int
}

// plane is the layout of a control plane: where its files are, and how each component is called.
type plane struct {
	dir   string
	pki   pki
	ports ports
	// flags that the caller adds, by component.
	flags map[string][]string
}

// prepare makes what is missing of a directory: certificates, ports, kubeconfigs.
func prepare(dir string, port int, flags map[string][]string) (*plane, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	p := &plane{dir: dir, pki: pki{filepath.Join(dir, "pki")}, flags: flags}
	if err := os.MkdirAll(p.pki.dir, 0o700); err != nil {
		return nil, err
	}
	if err := p.choosePorts(port); err != nil {
		return nil, err
	}
	return p, errors.Join(p.certificates(), p.kubeconfigs())
}

// choosePorts takes those of the last time, so that clients find the same server, or free ones.
func (p *plane) choosePorts(port int) error {
	file := filepath.Join(p.dir, "ports.json")
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &p.ports)
	} else {
		err = p.freePorts()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if port != 0 {
		p.ports.APIServer = port
	}
	if text, err = json.Marshal(p.ports); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

func (p *plane) freePorts() error {
	for _, port := range []*int{
		&p.ports.Etcd, &p.ports.EtcdPeer, &p.ports.APIServer, &p.ports.ControllerManager, &p.ports.Scheduler,
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		// Held until all are chosen, so that they differ.
		defer listener.Close()
		*port = listener.Addr().(*net.TCPAddr).Port
	}
	return nil
}

func (p *plane) certificates() error {
	ca, err := p.pki.authority("ca")
	if err != nil {
		return err
	}
	etcdCA, err := p.pki.authority("etcd-ca")
	if err != nil {
		return err
	}
	server := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	client := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	local := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	masters := []string{"system:masters"}
	if _, _, err := p.pki.load("sa"); errors.Is(err, os.ErrNotExist) {
		// A pair of keys is all that tokens need. The certificate says that it is there.
		if _, err := p.pki.authority("sa"); err != nil {
			return err
		}
	}
	return errors.Join(
		p.pki.issue("etcd", subject{"etcd", nil, slices.Concat(server, client), local}, etcdCA),
		p.pki.issue("apiserver-etcd-client", subject{"kube-apiserver", nil, client, nil}, etcdCA),
		p.pki.issue("apiserver", subject{"kube-apiserver", nil, server, local}, ca),
		p.pki.issue("apiserver-kubelet-client", subject{"kube-apiserver-kubelet-client", masters, client, nil}, ca),
		p.pki.issue(admin, subject{admin, masters, client, nil}, ca),
		p.pki.issue(controllerManager, subject{"system:kube-controller-manager", nil, client, nil}, ca),
		p.pki.issue(kubeScheduler, subject{"system:kube-scheduler", nil, client, nil}, ca),
	)
}

func (p *plane) kubeconfigs() error {
	return errors.Join(
		p.pki.kubeconfig(p.kubeconfig(), p.server(), admin),
		p.pki.kubeconfig(p.file(controllerManager+".kubeconfig"), p.server(), controllerManager),
		p.pki.kubeconfig(p.file(kubeScheduler+".kubeconfig"), p.server(), kubeScheduler),
	)
}

func (p *plane) file(name string) string { return filepath.Join(p.dir, name) }

// kubeconfig is the administrator's.
func (p *plane) kubeconfig() string { return p.file("kubeconfig") }

// log of a component.
func (p *plane) log(component string) string { return p.file(component + ".log") }

func (p *plane) server() string { return at("https", p.ports.APIServer) }

func at(scheme string, port int) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port) }

// arguments of a component: what kubeadm gives it, where that is not the default, and the caller's flags.
func (p *plane) arguments(component string) []string {
	flag := func(name string, value any) string { return fmt.Sprintf("--%s=%v", name, value) }
	key := func(name string) (string, string) { return p.pki.path(name + ".crt"), p.pki.path(name + ".key") }
	ca, caKey := key("ca")
	kubeconfig := p.file(component + ".kubeconfig")
	var arguments []string
	switch component {
	case etcd:
		clients, peers := at("https", p.ports.Etcd), at("https", p.ports.EtcdPeer)
		certificate, private := key("etcd")
		etcdCA := p.pki.path("etcd-ca.crt")
		arguments = []string{
			flag("name", "real"), flag("data-dir", p.file("etcd")), flag("snapshot-count", 10000),
			flag("listen-client-urls", clients), flag("advertise-client-urls", clients),
			flag("listen-peer-urls", peers), flag("initial-advertise-peer-urls", peers),
			flag("initial-cluster", "real="+peers),
			flag("cert-file", certificate), flag("key-file", private), flag("trusted-ca-file", etcdCA),
			flag("client-cert-auth", true),
			flag("peer-cert-file", certificate), flag("peer-key-file", private), flag("peer-trusted-ca-file", etcdCA),
			flag("peer-client-cert-auth", true),
		}
	case kubeAPIServer:
		certificate, private := key("apiserver")
		etcdCertificate, etcdKey := key("apiserver-etcd-client")
		kubeletCertificate, kubeletKey := key("apiserver-kubelet-client")
		arguments = []string{
			flag("advertise-address", "127.0.0.1"), flag("bind-address", "127.0.0.1"), flag("secure-port", p.ports.APIServer),
			// An advertised address on loopback is none that a Service could have.
			flag("endpoint-reconciler-type", "none"),
			flag("allow-privileged", true), flag("authorization-mode", "Node,RBAC"),
			flag("enable-admission-plugins", "NodeRestriction"), flag("enable-bootstrap-token-auth", true),
			flag("client-ca-file", ca), flag("tls-cert-file", certificate), flag("tls-private-key-file", private),
			flag("etcd-servers", at("https", p.ports.Etcd)), flag("etcd-cafile", p.pki.path("etcd-ca.crt")),
			flag("etcd-certfile", etcdCertificate), flag("etcd-keyfile", etcdKey),
			flag("kubelet-client-certificate", kubeletCertificate), flag("kubelet-client-key", kubeletKey),
			flag("kubelet-preferred-address-types", "InternalIP,ExternalIP,Hostname"),
			flag("service-account-issuer", "https://kubernetes.default.svc"),
			flag("service-account-key-file", p.pki.path("sa.pub")),
			flag("service-account-signing-key-file", p.pki.path("sa.key")),
			flag("service-cluster-ip-range", serviceRange),
			// Nobody forwards the addresses of Services: their webhooks are called at those of pods.
			flag("enable-aggregator-routing", true),
		}
	case controllerManager:
		arguments = []string{
			flag("bind-address", "127.0.0.1"), flag("secure-port", p.ports.ControllerManager),
			flag("kubeconfig", kubeconfig), flag("authentication-kubeconfig", kubeconfig),
			flag("authorization-kubeconfig", kubeconfig), flag("client-ca-file", ca), flag("leader-elect", true),
			flag("cluster-name", clusterName), flag("cluster-signing-cert-file", ca), flag("cluster-signing-key-file", caKey),
			flag("controllers", "*,bootstrapsigner,tokencleaner"), flag("root-ca-file", ca),
			flag("service-account-private-key-file", p.pki.path("sa.key")), flag("use-service-account-credentials", true),
			flag("service-cluster-ip-range", serviceRange),
		}
	case kubeScheduler:
		arguments = []string{
			flag("bind-address", "127.0.0.1"), flag("secure-port", p.ports.Scheduler),
			flag("kubeconfig", kubeconfig), flag("authentication-kubeconfig", kubeconfig),
			flag("authorization-kubeconfig", kubeconfig), flag("leader-elect", true),
		}
	}
	// Of a flag that is there twice the last one counts.
	return append(append([]string{component}, arguments...), p.flags[component]...)
}

// isReady asks a component whether it does its work.
func (p *plane) isReady(ctx context.Context, component string) error {
	url, identity, authority := "", admin, "ca"
	switch component {
	case etcd:
		url, identity, authority = at("https", p.ports.Etcd)+"/health", "apiserver-etcd-client", "etcd-ca"
	case kubeAPIServer:
		url = p.server() + "/readyz"
	case controllerManager:
		url, authority = at("https", p.ports.ControllerManager)+"/healthz", ""
	case kubeScheduler:
		url, authority = at("https", p.ports.Scheduler)+"/readyz", ""
	}
	certificate, err := tls.LoadX509KeyPair(p.pki.path(identity+".crt"), p.pki.path(identity+".key"))
	if err != nil {
		return err
	}
	trust := &tls.Config{Certificates: []tls.Certificate{certificate}}
	if authority == "" {
		// It made its serving certificate by itself, and nobody else is told of it. What it answers is not trusted with
		// anything.
		trust.InsecureSkipVerify = true
	} else {
		ca, _, err := p.pki.load(authority)
		if err != nil {
			return err
		}
		trust.RootCAs = x509.NewCertPool()
		trust.RootCAs.AddCert(ca)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, answer.Status)
	}
	return nil
}
