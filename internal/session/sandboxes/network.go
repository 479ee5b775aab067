package sandboxes

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/netproxy"
	"github.com/drover-dev/drover/internal/engine/sandbox"
)

// Reach decides whether a command may connect to a host; it may ask somebody. The text of an
// error is shown to the command.
type Reach func(ctx context.Context, host string, port int, line string) error

// maxClients is how many commands of a session the proxy knows. The oldest is forgotten first.
const maxClients = 10_000

// network is the way of the commands of a session to other machines.
type network struct {
	rules netproxy.Rules
	proxy *netproxy.Proxy
	port  int // where the commands reach the proxy
	stop  context.CancelCauseFunc
	vault *vault            // nil: no credentials are added
	used  func(text string) // gets the first use of each; never changes
	serve sync.WaitGroup

	mu      sync.Mutex
	clients map[string]*client // by user; guarded by mu
	order   []string           // of their start; guarded by mu
	last    int                // guarded by mu
}

// client is a command as the proxy knows it.
type client struct {
	password string
	line     string
	reach    Reach
	tell     func(why string) // called once for each refusal; nil: not called

	mu      sync.Mutex
	decided map[string]decision // by host and port
	refused []string            // why hosts were, at most maxRefused
}

// decision is whether a command may connect to a host: nil if it may.
type decision struct {
	err error
	at  time.Time
}

// refusalHolds is how long a refusal holds: a server that lives for hours may be allowed later.
const refusalHolds = time.Minute

// maxRefused is how many hosts are remembered as refused to one command.
const maxRefused = 20

// Refused returns why the command was not let through to hosts.
func (c *client) Refused() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.refused)
}

// openNetwork serves a proxy to the commands of a room, or without a room to those on the
// loopback address of this machine.
func openNetwork(room *sandbox.Room, rules netproxy.Rules, local map[int]string, vault *vault,
	upstream func(*url.URL) (*url.URL, error), used func(text string),
) (*network, error) {
	var l net.Listener
	var err error
	if room != nil {
		l, err = room.Listen(0)
	} else {
		l, err = net.Listen("tcp4", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("open the network of the sandbox: %w", err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the network of the sandbox: %w", err), l.Close())
	}
	n := &network{rules: rules, clients: map[string]*client{}, vault: vault, used: used}
	if n.port, err = strconv.Atoi(port); err != nil {
		return nil, errors.Join(fmt.Errorf("open the network of the sandbox: %w", err), l.Close())
	}
	c := netproxy.Config{
		Setting: "sandbox.domains", Known: n.known, Match: rules.Match, Allow: n.allow, Private: n.private,
		Log: n.ended, Upstream: upstream,
	}
	if vault != nil {
		c.Credential, c.Roots = vault.credential, vault.roots
	}
	n.proxy = netproxy.New(c)
	ctx, stop := context.WithCancelCause(context.Background())
	n.stop = stop
	n.serve.Go(func() { _ = n.proxy.Serve(ctx, l) }) // it fails only when it is closed
	for port, host := range local {
		if room == nil {
			break
		}
		if err := n.gateway(ctx, room, port, host); err != nil {
			n.close()
			return nil, err
		}
	}
	return n, nil
}

func (n *network) close() {
	n.stop(sandbox.ErrClosed)
	n.serve.Wait()
}

// join makes a command known to the proxy, and returns the variables by which it gets there.
func (n *network) join(line string, reach Reach) (*client, []string) {
	c := &client{password: rand.Text(), line: line, reach: reach, decided: map[string]decision{}}
	n.mu.Lock()
	n.last++
	user := "c" + strconv.Itoa(n.last)
	n.clients[user] = c
	if n.order = append(n.order, user); len(n.order) > maxClients {
		delete(n.clients, n.order[0])
		n.order = n.order[1:]
	}
	n.mu.Unlock()
	at := fmt.Sprintf("%s:%s@127.0.0.1:%d", user, c.password, n.port)
	var env []string
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		env = append(env, name+"=http://"+at)
	}
	for _, name := range []string{"ALL_PROXY", "all_proxy"} {
		env = append(env, name+"=socks5h://"+at)
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		env = append(env, name+"=localhost,127.0.0.1,::1")
	}
	env = append(env, "NODE_USE_ENV_PROXY=1") // Node.js follows the others only with it
	// Programs that look for a newer version of themselves would be a question about a command without a network.
	env = append(env, "npm_config_update_notifier=false", "NO_UPDATE_NOTIFIER=1", "PIP_DISABLE_PIP_VERSION_CHECK=1",
		"DENO_NO_UPDATE_CHECK=1", "CHECKPOINT_DISABLE=1")
	if n.vault != nil {
		env = append(env, n.vault.vars...)
	}
	return c, env
}

func (n *network) find(user string) *client {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.clients[user]
}

func (n *network) known(user, password string) bool {
	c := n.find(user)
	return c != nil && subtle.ConstantTimeCompare([]byte(c.password), []byte(password)) == 1
}

// ended remembers a refusal for its command.
func (n *network) ended(r netproxy.Request, o netproxy.Outcome) {
	if o.Credential != "" && n.vault.count(o.Credential, r.String()) {
		n.used(fmt.Sprintf("the sandbox adds the credential %s to requests for %s", o.Credential, r.Host))
	}
	c := n.find(r.User)
	if c == nil || !o.Refused || o.Err == nil {
		return
	}
	why := o.Err.Error()
	c.mu.Lock()
	fresh := len(c.refused) < maxRefused && !slices.Contains(c.refused, why)
	if fresh {
		c.refused = append(c.refused, why)
	}
	c.mu.Unlock()
	if fresh && c.tell != nil {
		c.tell(why)
	}
}

// private lets a command reach the machine and its networks only by a rule of the settings.
func (n *network) private(r netproxy.Request) bool {
	_, private := n.rules.Match(r)
	return private
}

// allow asks about a host once for each command.
func (n *network) allow(ctx context.Context, r netproxy.Request) error {
	c := n.find(r.User)
	if c == nil {
		return errors.New("the command is not known any more (start it again)")
	}
	key := r.String()
	c.mu.Lock()
	was, done := c.decided[key]
	c.mu.Unlock()
	if done && (was.err == nil || time.Since(was.at) < refusalHolds) {
		return was.err
	}
	err := c.reach(ctx, r.Host, r.Port, c.line)
	if ctx.Err() == nil { // else the question was withdrawn
		c.mu.Lock()
		c.decided[key] = decision{err, time.Now()}
		c.mu.Unlock()
	}
	return err
}

// unattended refuses hosts that the settings do not name.
func unattended(_ context.Context, host string, _ int, _ string) error {
	return fmt.Errorf("the setting sandbox.domains does not name it (add %s there)", host)
}
