package hub_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/hub"
	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/internal/fleet/members"
	"github.com/drover-dev/drover/internal/platform/home"
)

func open(t *testing.T, listen string) (*hub.Hub, hub.Config) {
	t.Helper()
	root := home.At(filepath.Join(t.TempDir(), "state"))
	c := hub.Config{
		Root:   root,
		Dir:    filepath.Join(root.Dir(), "hub"),
		Name:   "test",
		Listen: listen,
		Log:    slog.New(slog.DiscardHandler),
	}
	return reopen(t, c)
}

func reopen(t *testing.T, c hub.Config) (*hub.Hub, hub.Config) {
	t.Helper()
	h, err := hub.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h, c
}

func join(t *testing.T, h *hub.Hub, project, role string) link.Join {
	t.Helper()
	j, err := h.Join(t.Context(), project, role, "")
	if err != nil {
		t.Fatal(err)
	}
	if j, err = link.ParseJoin(j.String()); err != nil {
		t.Fatal(err)
	}
	return j
}

func connect(t *testing.T, j link.Join, role, name string, key *link.Key) (*link.Link, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	l, err := link.Open(ctx, link.Options{Role: role, Name: name, Join: j, Seed: key})
	if err == nil {
		t.Cleanup(l.Close)
	}
	return l, err
}

// A question ends with the connection on which it was asked, and what is published goes on with the next one.
func TestLost(t *testing.T) {
	h, _ := open(t, "127.0.0.1:0")
	j := join(t, h, "main", link.RoleSession)
	conns := make(chan net.Conn, 10)
	l, err := link.Open(t.Context(), link.Options{Role: link.RoleSession, Name: "s", Join: j, Dial: func() (net.Conn, error) {
		c, err := net.Dial("tcp", j.Address)
		conns <- c
		return c, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	other, err := connect(t, j, link.RoleSession, "other", nil)
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{})
	if _, err := other.Conn.Subscribe("drover.session.s1.claim.w", func(*nats.Msg) { close(heard) }); err != nil {
		t.Fatal(err)
	}
	if err := other.Conn.Flush(); err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 1)
	go func() {
		_, err := l.Ask(t.Context(), fleetwire.Ask("s1", fleetwire.AskClaim, "w"), 1, new(int))
		asked <- err
	}()
	<-heard
	begin := time.Now()
	_ = (<-conns).Close()
	if err := <-asked; err == nil || time.Since(begin) > 5*time.Second {
		t.Errorf("the question ended after %s: %v", time.Since(begin), err)
	}
	if err := l.Publish(t.Context(), fleetwire.EventOf("s1", "w", "b1"), "", []byte("{}\n")); err != nil {
		t.Error(err)
	}
}

func key(t *testing.T) *link.Key {
	t.Helper()
	k, err := link.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestJoin(t *testing.T) {
	h, c := open(t, "127.0.0.1:0")
	j := join(t, h, "main", link.RoleWorker)
	if _, err := connect(t, j, link.RoleWorker, "one", key(t)); err != nil {
		t.Error(err)
	}
	if _, err := connect(t, j, link.RoleWorker, "one", key(t)); err == nil {
		t.Error("another worker took the name of one")
	}
	if _, err := connect(t, j, link.RoleWorker, "two", nil); err == nil {
		t.Error("a worker without a key was let in")
	}
	if _, err := connect(t, j, link.RoleSession, "s", nil); err == nil {
		t.Error("the token of a worker let a session in")
	}
	bad := j
	bad.Token = "x" + j.Token[1:]
	if _, err := connect(
		t,
		bad,
		link.RoleWorker,
		"three",
		key(t),
	); err == nil ||
		!strings.Contains(err.Error(), "drover hub join") {
		t.Errorf("a wrong token: %v", err)
	}
	if _, err := hub.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "another one") {
		t.Errorf("a second hub in the folder: %v", err)
	}
	c.Dir, c.Listen = c.Dir+"2", h.Address()
	begin := time.Now()
	if _, err := hub.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a second hub at the address: %v", err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it was refused after %s", took)
	}
}

// A worker hears nothing that is not for it, and cannot speak for another.
func TestBounds(t *testing.T) {
	h, _ := open(t, "127.0.0.1:0")
	w, err := connect(t, join(t, h, "main", link.RoleWorker), link.RoleWorker, "one", key(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"drover.>", "drover.worker.two.>", "drover.event.>", "$JS.API.>", "_INBOX.>", "_INBOX_worker_two.>"} {
		sub, err := w.Conn.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		_ = w.Conn.Flush()
		if _, err := sub.NextMsg(time.Second); err == nil || !strings.Contains(err.Error(), "ermissions") {
			t.Errorf("subscribe to %s: %v", subject, err)
		}
	}
	s, err := connect(t, join(t, h, "main", link.RoleSession), link.RoleSession, "s", nil)
	if err != nil {
		t.Fatal(err)
	}
	heard, err := s.Conn.SubscribeSync("drover.>")
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Conn.Flush()
	for _, subject := range []string{"drover.event.s1.two.b1", "drover.session.s1.claim.two", "drover.worker.two.s1.b1", "drover.offer.any"} {
		if err := w.Conn.Publish(subject, []byte("forged")); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Conn.Publish("drover.event.s1.one.b1", []byte("own")); err != nil {
		t.Fatal(err)
	}
	_ = w.Conn.Flush()
	m, err := heard.NextMsg(5 * time.Second)
	if err != nil || string(m.Data) != "own" {
		t.Errorf("heard %v, %v, want only what the worker may say", m, err)
	}
	// Another project hears nothing of it.
	other, err := connect(t, join(t, h, "other", link.RoleSession), link.RoleSession, "s", nil)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := other.Conn.SubscribeSync("drover.>")
	if err != nil {
		t.Fatal(err)
	}
	_ = other.Conn.Flush()
	if err := s.Conn.Publish("drover.offer.any", []byte("x")); err != nil {
		t.Fatal(err)
	}
	_ = s.Conn.Flush()
	_ = other.Conn.Flush()
	if m, err := sub.NextMsg(100 * time.Millisecond); err == nil {
		t.Errorf("another project heard %q", m.Data)
	}
}

// Beyond the loopback address there is TLS only, with the certificate of the line.
func TestTLS(t *testing.T) {
	h, c := open(t, "0.0.0.0:0")
	j, err := h.Join(t.Context(), "main", link.RoleWorker, strings.Replace(h.Address(), "[::]", "127.0.0.1", 1))
	if err != nil {
		t.Fatal(err)
	}
	if j.Pin == "" || !h.TLS() {
		t.Fatal("a hub that others reach has no certificate")
	}
	if _, err := connect(t, j, link.RoleWorker, "one", key(t)); err != nil {
		t.Error(err)
	}
	bare := j
	bare.Pin = ""
	if _, err := connect(t, bare, link.RoleWorker, "two", key(t)); err == nil {
		t.Error("a connection without TLS was let in")
	}
	wrong := j
	wrong.Pin = strings.Repeat("0", 64)
	if _, err := connect(t, wrong, link.RoleWorker, "three", key(t)); err == nil {
		t.Error("a hub with another certificate was believed")
	}
	if _, err := link.ParseJoin("drover://token@192.0.2.1:7484/main"); err == nil {
		t.Error("a line without a certificate is good for another machine")
	}
	h.Close()
	again, err := hub.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if k, err := again.Join(t.Context(), "main", link.RoleWorker, ""); err != nil || k.Pin != j.Pin {
		t.Errorf("after a restart the certificate is %v, %v", k.Pin, err)
	}
}

func TestInvite(t *testing.T) {
	h, c := open(t, "127.0.0.1:0")
	if err := h.Describe(t.Context(), "v"); err != nil {
		t.Fatal(err)
	}
	own, err := link.Own(c.Root, c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := connect(t, own, link.RoleSession, "s", nil); err != nil {
		t.Error(err)
	}
	j, err := members.Invite(t.Context(), c.Root, c.Dir, "extra", link.RoleWorker, "")
	if err != nil {
		t.Fatal(err)
	}
	w, err := connect(t, j, link.RoleWorker, "one", key(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.JS.KeyValue(t.Context(), fleetwire.Workers); err != nil {
		t.Errorf("the project of an invited worker has no bucket of workers: %v", err)
	}
}

// What the hub has of a folder is not sent again by the next session, and a worker has what it knows the digest of: it
// cannot ask what else is there.
func TestParts(t *testing.T) {
	h, _ := open(t, "127.0.0.1:0")
	const digest = "0000000000000000000000000000000000000000000000000000000000000001"
	for _, there := range []bool{false, true} {
		s, err := connect(t, join(t, h, "main", link.RoleSession), link.RoleSession, "s", nil)
		if err != nil {
			t.Fatal(err)
		}
		if has, err := s.Parts().Has(t.Context(), digest); err != nil || has != there {
			t.Errorf("the hub has the part: %t, %v, want %t", has, err, there)
		}
		if err := s.Parts().Put(t.Context(), digest, []byte("part")); err != nil {
			t.Fatal(err)
		}
	}
	w, err := connect(t, join(t, h, "main", link.RoleWorker), link.RoleWorker, "one", key(t))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := w.Parts().Get(t.Context(), digest); err != nil || string(got) != "part" {
		t.Errorf("the worker has %q, %v", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	all := []byte(`{"subjects_filter":">"}`)
	if m, err := w.Conn.RequestWithContext(ctx, "$JS.API.STREAM.INFO.KV_"+fleetwire.Parts, all); err == nil {
		t.Errorf("the worker lists the parts of all: %s", m.Data)
	}
}

// Workers that lose their hub together come back one after the other, and all of them.
func TestStorm(t *testing.T) {
	const n = 200
	h, c := open(t, "127.0.0.1:0")
	j := join(t, h, "main", link.RoleWorker)
	links := make([]*link.Link, n)
	for i := range links {
		var err error
		if links[i], err = connect(t, j, link.RoleWorker, fmt.Sprint("w", i), key(t)); err != nil {
			t.Fatal(err)
		}
	}
	c.Listen = h.Address()
	h.Close()
	reopen(t, c)
	begin := time.Now()
	back := make([]time.Duration, 0, n)
	for _, l := range links {
		for !l.Conn.IsConnected() {
			if time.Since(begin) > 30*time.Second {
				t.Fatalf("%d of %d are back", len(back), n)
			}
			time.Sleep(time.Millisecond) // the library tells only one of its callers
		}
		back = append(back, time.Since(begin))
	}
	if err := links[n-1].Publish(t.Context(), fleetwire.EventOf("s", fmt.Sprint("w", n-1), "t"), "", []byte("x")); err != nil {
		t.Errorf("the hub does not take a message: %v", err)
	}
	t.Logf("all are back after %s", back[n-1])
}
