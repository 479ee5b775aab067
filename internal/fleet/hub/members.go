package hub

import (
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
	"time"

	"github.com/nats-io/nats-server/v2/server"
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

// maxMembers limits connections and the names of workers in a project.
const maxMembers = 10000

// members are who may connect. Its methods may be called by several goroutines.
type members struct {
	root home.Root
	dir  string

	mu      sync.Mutex
	passing map[string]token // of this process for itself, in no file; guarded by mu
}

type token struct {
	Project string `json:"project"`
	Role    string `json:"role"`
}

// openMembers makes the folders of the members of a hub.
func openMembers(root home.Root, dir string) (*members, error) {
	for _, d := range []string{dir, filepath.Join(dir, tokens), filepath.Join(dir, workers)} {
		if err := root.Below().Mkdir(d); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("open hub: %w", err)
		}
	}
	return &members{root: root, dir: dir, passing: map[string]token{}}, nil
}

// admit makes a token, which is kept as its sum only.
func (m *members) admit(project, role string) (string, error) {
	if err := fleetwire.CheckName("project", project); err != nil {
		return "", err
	}
	if role != link.RoleWorker && role != link.RoleSession {
		return "", fmt.Errorf("make a token: the role %.40q is neither %s nor %s", role, link.RoleWorker, link.RoleSession)
	}
	secret := rand.Text()
	data, err := json.Marshal(token{project, role})
	if err == nil {
		err = m.root.WriteAtomic(m.file(secret), data)
	}
	if err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	return secret, nil
}

// file returns the path of a token.
func (m *members) file(secret string) string {
	s := sha256.Sum256([]byte(secret))
	return filepath.Join(m.dir, tokens, hex.EncodeToString(s[:])+".json")
}

func (m *members) token(secret string) (t token, err error) {
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

// recognize identifies a client, or refuses it. A worker is bound to the key with which its name was
// first used.
func (m *members) recognize(secret, name, key, signature string, nonce []byte) (t token, worker string, err error) {
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
func (m *members) bind(name, key string) error {
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
	if all, err := m.root.Below().Names(filepath.Dir(file)); err != nil || len(all) >= maxMembers {
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

// Check implements [server.Authentication].
func (h *Hub) Check(c server.ClientAuthentication) bool {
	o := c.GetOpts()
	t, worker, err := h.members.recognize(o.Token, o.Name, o.Nkey, o.Sig, c.GetNonce())
	if err != nil {
		h.log(fmt.Sprintf("%s was refused: %.300q: %v", c.RemoteAddress(), o.Name, err))
		return false
	}
	account, err := h.account(t.Project)
	if err != nil {
		h.log(err.Error())
		return false
	}
	user := &server.User{Username: o.Name, Account: account}
	if t.Role == link.RoleWorker {
		user.Permissions = ofWorker(worker)
	}
	c.RegisterUser(user)
	return true
}

// callTime is how long a worker may take to answer a call.
const callTime = time.Minute

// ofWorker returns the subjects that a worker may use: offers, which have no secrets, its commands, and nothing of the
// claims of others.
func ofWorker(name string) *server.Permissions {
	inbox := "_INBOX_" + link.RoleWorker + "_" + name + ".>"
	consumer := link.ConsumerOf(name)
	return &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{
			fleetwire.AskHub,
			"drover.session.*.*." + name,
			"drover.event.*." + name + ".*",
			"$KV." + fleetwire.Workers + "." + name,
			"$KV." + fleetwire.Parts + ".*",
			"$JS.API.DIRECT.GET.KV_" + fleetwire.Parts + ".>",
			"$JS.API.STREAM.INFO.KV_" + fleetwire.Workers,
			"$JS.API.DIRECT.GET.KV_" + fleetwire.Workers + ".$KV." + fleetwire.Workers + "." + name,
			"$JS.API.CONSUMER.*." + fleetwire.Offers + ".>", "$JS.API.CONSUMER.MSG.NEXT." + fleetwire.Offers + ".*",
			"$JS.ACK." + fleetwire.Offers + ".>",
			"$JS.API.CONSUMER.CREATE." + fleetwire.Commands + "." + consumer + ".drover.worker." + name + ".>",
			"$JS.API.CONSUMER.INFO." + fleetwire.Commands + "." + consumer,
			"$JS.API.CONSUMER.MSG.NEXT." + fleetwire.Commands + "." + consumer,
			"$JS.ACK." + fleetwire.Commands + "." + consumer + ".>",
		}},
		Subscribe: &server.SubjectPermission{Allow: []string{inbox, fleetwire.CallTo(name, "*")}},
		Response:  &server.ResponsePermission{MaxMsgs: 1, Expires: callTime}, // to a call
	}
}

// temporary is a token of this process for itself.
func (m *members) temporary(project string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	secret := rand.Text()
	m.passing[secret] = token{project, link.RoleSession}
	return secret
}

// expel takes it back.
func (m *members) expel(secret string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.passing, secret)
}
