package hub

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/internal/fleet/link"
)

// How long certificates are valid. They begin a day early, for machines whose clock is slow.
const (
	validFor  = 10 * 365 * 24 * time.Hour
	validFrom = 24 * time.Hour
)

// certificate returns the certificate of the hub followed by its authority's, made at the first start, and the pin of
// the authority's.
func (h *Hub) certificate() (cert tls.Certificate, pin string, err error) {
	file := filepath.Join(h.cfg.Dir, "certificate.pem")
	text, err := h.cfg.Root.ReadFile(file, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		if text, err = newCertificate(time.Now()); err == nil {
			err = h.cfg.Root.WriteAtomic(file, text)
		}
	}
	if err == nil {
		cert, err = tls.X509KeyPair(text, text)
	}
	if err == nil && len(cert.Certificate) != 2 {
		err = errors.New("it has no authority")
	}
	if err != nil {
		return cert, "", fmt.Errorf("read certificate %s: %w (remove it: a new one is made, and all join anew)", file, err)
	}
	return cert, link.Pin(cert.Certificate[1]), nil
}

// newCertificate makes an authority that signs one certificate and is then forgotten.
func newCertificate(now time.Time) ([]byte, error) {
	root, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Drover hub authority"},
		NotBefore: now.Add(-validFrom), NotAfter: now.Add(validFor), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	own := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "Drover hub"},
		NotBefore: now.Add(-validFrom), NotAfter: now.Add(validFor), DNSNames: []string{"drover-hub"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	rootDER, err := x509.CreateCertificate(rand.Reader, authority, authority, &root.PublicKey, root)
	if err != nil {
		return nil, err
	}
	ownDER, err := x509.CreateCertificate(rand.Reader, own, authority, &key.PublicKey, root)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	out := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ownDER})
	out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootDER})...)
	return append(out, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})...), nil
}
