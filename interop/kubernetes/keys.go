package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// keys prints the key of every object in etcd but Events, one on a line: what the API server has stored, whatever
// labels say.
func keys() int {
	plane, err := prepare(dir, 0, nil)
	if err != nil {
		return refuse(err)
	}
	certificate, err := tls.LoadX509KeyPair(plane.pki.path("apiserver-etcd-client.crt"), plane.pki.path("apiserver-etcd-client.key"))
	if err != nil {
		return refuse(err)
	}
	ca, _, err := plane.pki.load("etcd-ca")
	if err != nil {
		return refuse(err)
	}
	trust := x509.NewCertPool()
	trust.AddCert(ca)
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{at("https", plane.ports.Etcd)},
		TLS:         &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: trust},
		DialTimeout: 5 * time.Second,
	})
	if err != nil {
		return fail(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	found, err := client.Get(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return fail(err)
	}
	for _, pair := range found.Kvs {
		if key := string(pair.Key); !strings.HasPrefix(key, "/registry/events/") {
			fmt.Println(key)
		}
	}
	return exitDone
}
