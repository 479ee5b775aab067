//go:build linux

package machines

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/test/harness"
)

// An existing NATS cluster with accounts is used by credentials: three servers, of which one dies while a task runs.
func TestCluster(t *testing.T) {
	t.Parallel()
	w := &world{Place: harness.New(t, program), lease: 20 * time.Second, began: time.Now()}
	t.Cleanup(func() { w.End(harness.Patience) })
	c := newCluster(t, 3)
	urls := c.urls()
	creds := filepath.Join(w.Work, "drover.creds")
	w.Must(os.WriteFile(creds, c.credentials(t), 0o600))
	w.Settings(fmt.Sprintf(`{"workers": {"hub": %q, "credentials": %q, "lease": %q}}`, urls, creds, w.lease))
	repository(w.Place)
	worker := with(w.Place, program, w.far()).Start("worker", "--name", "far", "--capacity", "4")
	w.Until("the worker", func() bool { return strings.Contains(w.Run("workers").Stdout(), "far") })
	if got := w.Good("hub", "status"); !strings.Contains(got, "1 workers") {
		t.Errorf("hub status:\n%s", got)
	}
	id := w.Good("run", "--on", "far", "-d", "--name", "cluster", "--", fmt.Sprintf(
		`i=0; while [ ! -e %s/go-cluster ]; do i=$((i+1)); echo "cluster $i"; sleep 0.02; done; echo two >made; echo last $i`, w.Dir))
	w.Until("output", func() bool { return strings.Contains(w.Run("logs", id).Stdout(), "cluster 3") })
	dies := c.leads(t, fleetwire.Events)
	dies.Shutdown()
	dies.WaitForShutdown()
	w.letGo("cluster")
	if r := w.ended(id); r.Status != "completed" {
		t.Errorf("it ended as %s, %+v: %s", r.Status, r.Cause, r.Error)
	}
	w.whole(id, "cluster")
	if got := w.shown("refs/drover/tasks/" + id + ":made"); got != "two\n" {
		t.Errorf("what it has made is %q", got)
	}
	w.sound("server of a cluster ended")
	w.Must(worker.Cmd.Process.Signal(os.Interrupt))
	w.Must(worker.Wait())
	out := w.Run("worker", "--name", "other", "--hub", urls, "--credentials", filepath.Join(w.Work, "none"))
	if out.Code() == 0 || !strings.Contains(out.Stderr(), "none") {
		t.Errorf("a worker without credentials: %d, %s", out.Code(), out.Stderr())
	}
}

// A cluster that takes small messages only is refused with what to change.
func TestClusterPayload(t *testing.T) {
	t.Parallel()
	w := harness.New(t, program)
	t.Cleanup(func() { w.End(harness.Patience) })
	o := &server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}
	s := start(t, o)
	out := w.Run("worker", "--name", "far", "--hub", s.ClientURL())
	if out.Code() == 0 || !strings.Contains(out.Stderr(), "max_payload: 8MB") {
		t.Errorf("%d, %s", out.Code(), out.Stderr())
	}
}

// cluster is some servers with an operator and one account.
type cluster struct {
	servers []*server.Server
	account nkeys.KeyPair
}

func newCluster(t *testing.T, n int) *cluster {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	operator, err := nkeys.CreateOperator()
	must(err)
	resolver := &server.MemAccResolver{}
	account := func(name string, stored bool) (nkeys.KeyPair, string) {
		pair, err := nkeys.CreateAccount()
		must(err)
		public, err := pair.PublicKey()
		must(err)
		claims := jwt.NewAccountClaims(public)
		if claims.Name = name; stored {
			claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
		}
		token, err := claims.Encode(operator)
		must(err)
		must(resolver.Store(public, token))
		return pair, public
	}
	c := &cluster{}
	_, system := account("SYS", false)
	c.account, _ = account("TEAM", true)
	key, err := operator.PublicKey()
	must(err)
	claims := jwt.NewOperatorClaims(key)
	claims.SystemAccount = system
	token, err := claims.Encode(operator)
	must(err)
	trusted, err := jwt.DecodeOperatorClaims(token)
	must(err)
	var routes []*url.URL
	ports := make([]int, n)
	for i := range ports {
		ports[i] = freePort(t)
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", ports[i])})
	}
	for i := range n {
		c.servers = append(c.servers, start(t, &server.Options{
			ServerName: fmt.Sprint("n", i), Host: "127.0.0.1", Port: -1, MaxPayload: 8 << 20, NoLog: true, NoSigs: true,
			JetStream: true, StoreDir: t.TempDir(), TrustedOperators: []*jwt.OperatorClaims{trusted}, AccountResolver: resolver,
			SystemAccount: system, Routes: routes,
			Cluster: server.ClusterOpts{Name: "team", Host: "127.0.0.1", Port: ports[i]},
		}))
	}
	limit := time.Now().Add(harness.Patience)
	for !c.servers[0].JetStreamIsCurrent() || !ledBy(c.servers) {
		if time.Now().After(limit) {
			t.Fatal("the cluster has no leader")
		}
		time.Sleep(20 * time.Millisecond) // its election tells nobody
	}
	return c
}

func ledBy(all []*server.Server) bool {
	for _, s := range all {
		if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(all) {
			return true
		}
	}
	return false
}

func start(t *testing.T, o *server.Options) *server.Server {
	t.Helper()
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(harness.Patience) {
		t.Fatal("the server does not listen")
	}
	return s
}

// leads is the server that leads a stream.
func (c *cluster) leads(t *testing.T, stream string) *server.Server {
	t.Helper()
	account, err := c.account.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.servers {
		if s.JetStreamIsStreamLeader(account, stream) {
			return s
		}
	}
	t.Fatalf("no server leads %s", stream)
	return nil
}

func (c *cluster) urls() string {
	var all []string
	for _, s := range c.servers {
		all = append(all, "nats://"+s.Addr().(*net.TCPAddr).String())
	}
	return strings.Join(all, ",")
}

// credentials is a file of a user of the account.
func (c *cluster) credentials(t *testing.T) []byte {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.NewUserClaims(public).Encode(c.account)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	file, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		t.Fatal(err)
	}
	return file
}
