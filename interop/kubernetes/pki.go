package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// lifetime of every certificate. A control plane of this kind lives for hours.
const lifetime = 365 * 24 * time.Hour

// pki is a directory with the certificate authorities of a cluster and what they have signed, by the names that kubeadm
// gives them. What is there already is used again, so that a control plane that is started again has the same identity.
type pki struct{ dir string }

func (p pki) path(name string) string { return filepath.Join(p.dir, name) }

// authority is who signs.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// subject of a certificate, and what it is for.
type subject struct {
	name   string
	groups []string
	usage  []x509.ExtKeyUsage
	dns    []string
}

func (p pki) authority(name string) (authority, error) {
	certificate, key, err := p.load(name)
	if errors.Is(err, fs.ErrNotExist) {
		template := &x509.Certificate{
			Subject:               pkix.Name{CommonName: name},
			IsCA:                  true,
			BasicConstraintsValid: true,
			KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		}
		if key, err = p.key(name); err != nil {
			return authority{}, err
		}
		certificate, err = p.sign(name, template, key, authority{template, key})
	}
	return authority{certificate, key}, err
}

// issue makes a certificate and its key, NAME.crt and NAME.key, unless they are there.
func (p pki) issue(name string, who subject, by authority) error {
	if _, _, err := p.load(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := p.key(name)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: who.name, Organization: who.groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: who.usage,
		DNSNames:    who.dns,
	}
	if len(who.dns) > 0 {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), serviceAddress}
	}
	_, err = p.sign(name, template, key, by)
	return err
}

func (p pki) sign(name string, template *x509.Certificate, key crypto.Signer, by authority) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	// A clock that is a little behind must not refuse what was just made.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(lifetime)
	der, err := x509.CreateCertificate(rand.Reader, template, by.certificate, key.Public(), by.key)
	if err != nil {
		return nil, fmt.Errorf("cannot sign the certificate %s: %w", name, err)
	}
	if err := p.write(name+".crt", "CERTIFICATE", der); err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// key makes NAME.key, and NAME.pub for those who verify tokens.
func (p pki) key(name string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	return key, errors.Join(
		p.write(name+".key", "EC PRIVATE KEY", private),
		p.write(name+".pub", "PUBLIC KEY", public),
	)
}

func (p pki) write(file, kind string, der []byte) error {
	return os.WriteFile(p.path(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// load reads NAME.crt and NAME.key; the error is fs.ErrNotExist if one of them is missing.
func (p pki) load(name string) (*x509.Certificate, crypto.Signer, error) {
	der := func(file string) ([]byte, error) {
		text, err := os.ReadFile(p.path(file))
		if err != nil {
			return nil, err
		}
		block, _ := pem.Decode(text)
		if block == nil {
			return nil, fmt.Errorf("%s is not PEM; delete the directory to begin anew", p.path(file))
		}
		return block.Bytes, nil
	}
	private, err := der(name + ".key")
	if err != nil {
		return nil, nil, err
	}
	key, err := x509.ParseECPrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", p.path(name+".key"), err)
	}
	public, err := der(name + ".crt")
	if err != nil {
		return nil, nil, err
	}
	certificate, err := x509.ParseCertificate(public)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", p.path(name+".crt"), err)
	}
	return certificate, key, nil
}

// kubeconfig writes one that holds everything it needs.
func (p pki) kubeconfig(file, server, user string) error {
	ca, errCA := os.ReadFile(p.path("ca.crt"))
	certificate, errCertificate := os.ReadFile(p.path(user + ".crt"))
	key, errKey := os.ReadFile(p.path(user + ".key"))
	if err := errors.Join(errCA, errCertificate, errKey); err != nil {
		return err
	}
	named := func(name, key string, value map[string]any) []map[string]any {
		return []map[string]any{{"name": name, key: value}}
	}
	// JSON is YAML, and bytes are base64 in it.
	text, err := json.MarshalIndent(map[string]any{
		"apiVersion": "v1",
		"kind":       "Config",
		"clusters": named(clusterName, "cluster", map[string]any{
			"server": server, "certificate-authority-data": ca,
		}),
		"users": named(user, "user", map[string]any{
			"client-certificate-data": certificate, "client-key-data": key,
		}),
		"contexts":        named(clusterName, "context", map[string]any{"cluster": clusterName, "user": user}),
		"current-context": clusterName,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600)
}
