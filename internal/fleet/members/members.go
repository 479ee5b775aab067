// Package members knows who may connect to the hub of a user, and where that hub is: the files of its folder, which the
// hub and other processes of the user share. It lets others in without the server, and runs none.
package members

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"github.com/nats-io/nkeys"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/internal/platform/home"
)

// Folders of a hub's folder. Each token and each worker is a file of its own, so that a second
// process can add some.
const (
	tokens  = "tokens"  // by the SHA-256 of each: whom it lets in
	workers = "workers" // by project and name: the public key that has the name
)

// Max limits connections and the names of workers in a project.
const Max = 10000

// maxFile limits each file, in bytes.
const maxFile = 1 << 20

// DefaultProject is where a session and a worker meet that name no project.
const DefaultProject = "main"

// Dir is the folder of the user's own hub.
func Dir(root home.Root) string { return filepath.Join(root.Dir(), "hub") }

// Members are who may connect. Its methods may be called by several goroutines.
type Members struct {
	root home.Root
	dir  string

	mu      sync.Mutex
	passing map[string]Token // of this process for itself, in no file; guarded by mu
}

// Token is whom a token lets in.
type Token struct {
	Project string `json:"project"`
	Role    string `json:"role"`
}

// Open makes the folders of the members of a hub.
func Open(root home.Root, dir string) (*Members, error) {
	for _, d := range []string{dir, filepath.Join(dir, tokens), filepath.Join(dir, workers)} {
		if err := root.Below().Mkdir(d); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("open hub: %w", err)
		}
	}
	return &Members{root: root, dir: dir, passing: map[string]Token{}}, nil
}

// Admit makes a token, which is kept as its sum only.
func (m *Members) Admit(project, role string) (string, error) {
	if err := fleetwire.CheckName("project", project); err != nil {
		return "", err
	}
	if role != link.RoleWorker && role != link.RoleSession {
		return "", fmt.Errorf("make a token: the role %.40q is neither %s nor %s", role, link.RoleWorker, link.RoleSession)
	}
	secret := rand.Text()
	data, err := json.Marshal(Token{project, role})
	if err == nil {
		err = m.root.WriteAtomic(m.file(secret), data)
	}
	if err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	return secret, nil
}

// file returns the path of a token.
func (m *Members) file(secret string) string {
	s := sha256.Sum256([]byte(secret))
	return filepath.Join(m.dir, tokens, hex.EncodeToString(s[:])+".json")
}

func (m *Members) token(secret string) (t Token, err error) {
	m.mu.Lock()
	t, ok := m.passing[secret]
	m.mu.Unlock()
	if ok {
		return t, nil
	}
	data, err := m.root.ReadFile(m.file(secret), maxFile)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return t, errors.New("its token is not known")
	}
	return t, err
}

// Recognize identifies a client, or refuses it. A worker is bound to the key with which its name was
// first used.
func (m *Members) Recognize(secret, name, key, signature string, nonce []byte) (t Token, worker string, err error) {
	if t, err = m.token(secret); err != nil {
		return t, "", err
	}
	role, worker, _ := strings.Cut(name, ".")
	if role != t.Role {
		return t, "", fmt.Errorf("its token is for a %s", t.Role)
	}
	if t.Role != link.RoleWorker {
		return t, worker, nil
	}
	if err := fleetwire.CheckName("worker", worker); err != nil {
		return t, "", err
	}
	if err := signed(key, signature, nonce); err != nil {
		return t, "", err
	}
	return t, worker, m.bind(t.Project+"."+worker, key)
}

// bind gives a name to a key, or refuses if another one has it.
func (m *Members) bind(name, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	file := filepath.Join(m.dir, workers, name)
	known, err := m.root.ReadFile(file, maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case strings.TrimSpace(string(known)) == key:
		return nil
	default:
		return fmt.Errorf("another worker has this name (choose another one with --name, or remove %s)", file)
	}
	if all, err := m.root.Below().Names(filepath.Dir(file)); err != nil || len(all) >= Max {
		return errors.Join(err,
			fmt.Errorf("there are %d workers already (remove some from %s)", len(all), filepath.Dir(file)))
	}
	return m.root.WriteAtomic(file, []byte(key+"\n"))
}

// signed checks that the client has the private key, as a server of NATS does.
func signed(key, signature string, nonce []byte) error {
	public, err := nkeys.FromPublicKey(key)
	if err != nil {
		return errors.New("it shows no key")
	}
	raw, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil {
		raw, err = base64.StdEncoding.DecodeString(signature)
	}
	if err != nil || public.Verify(nonce, raw) != nil {
		return errors.New("its key is not its own")
	}
	return nil
}

// Temporary is a token of this process for itself.
func (m *Members) Temporary(project string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	secret := rand.Text()
	m.passing[secret] = Token{project, link.RoleSession}
	return secret
}

// Expel takes it back.
func (m *Members) Expel(secret string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.passing, secret)
}

// About is the file of a running hub for other processes of its user.
type About struct {
	Address string `json:"address"`
	Pin     string `json:"certificate,omitempty"` // SHA-256 of its authority's; empty: no TLS
	PID     int    `json:"pid"`
	Version string `json:"version"`
}

func aboutFile(dir string) string { return filepath.Join(dir, "hub.json") }

// Describe writes down where the hub is.
func (m *Members) Describe(a About) error {
	data, err := json.Marshal(a)
	if err == nil {
		err = m.root.WriteAtomic(aboutFile(m.dir), data)
	}
	if err != nil {
		return fmt.Errorf("describe hub: %w", err)
	}
	return nil
}

// Invite makes a line that lets a role into a project of a running hub of this user, from another
// process. address is where others reach the hub; empty: where it listens.
func Invite(ctx context.Context, root home.Root, dir, project, role, address string) (link.Join, error) {
	data, err := root.ReadFile(aboutFile(dir), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return link.Join{}, link.ErrNoHub
	}
	var about About
	if err == nil {
		err = json.Unmarshal(data, &about)
	}
	if err != nil {
		return link.Join{}, fmt.Errorf("find hub: %w", err)
	}
	m, err := Open(root, dir)
	if err != nil {
		return link.Join{}, err
	}
	own, err := m.Admit(project, link.RoleSession)
	if err != nil {
		return link.Join{}, err
	}
	join := link.Join{Address: about.Address, Project: project, Token: own, Pin: about.Pin}
	defer func() { _ = root.Below().Remove(m.file(own)) }() // it has no more use
	l, err := link.Open(ctx, link.Options{Role: link.RoleSession, Name: "invite", Join: join})
	if err != nil {
		return link.Join{}, err
	}
	defer l.Close()
	if err := link.Ensure(ctx, l.JS, link.DefaultStore); err != nil {
		return link.Join{}, err
	}
	if join.Token, err = m.Admit(project, role); err != nil {
		return link.Join{}, err
	}
	if address != "" {
		join.Address = address
	}
	return join, nil
}
