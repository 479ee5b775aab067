// Package hub is a NATS server with JetStream in this process, through which sessions and workers
// of many machines reach each other.
//
// A [Hub] owns its folder: the server's files, its certificate, and who may connect. Each project
// has an account of its own, so that no connection sees another project's messages. A hub beyond
// the loopback address always speaks TLS. It carries messages and judges none of them: which task
// ends how stands in the log of its session.
package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/internal/fleet/members"
	"github.com/drover-dev/drover/internal/platform/addresses"
	"github.com/drover-dev/drover/internal/platform/home"
)

// maxFile limits each file of a hub, in bytes.
const maxFile = 16 << 20

// ready is how long the server may take to start.
const ready = 20 * time.Second

// allStore bounds what all projects may reserve on the disk, which they mostly do not use, and maxMemory in memory.
const (
	allStore  = 1 << 42
	maxMemory = 64 << 20
)

// Config says where a hub is.
type Config struct {
	Root   home.Root
	Dir    string // in the state directory
	Name   string // of the machine
	Listen string // host:port
	Store  int64  // bytes that what workers tell may take in a project, and parts of folders as many; 0: 2 GiB
	Log    *slog.Logger
}

// Hub is a running hub. Its methods may be called by several goroutines.
type Hub struct {
	cfg     Config
	members *members.Members
	server  *server.Server
	pin     string // empty: no TLS
	unlock  func()
	stop    context.CancelFunc // of watching
	watcher sync.WaitGroup
	retry   time.Time // of opening the store, not earlier; of the watcher alone, as the next
	suspect string    // the problem of the store at the last look

	mu       sync.Mutex
	accounts map[string]*server.Account // guarded by mu
	ensured  map[string]bool            // projects whose streams are there; guarded by mu
	conns    map[string]*nats.Conn      // of this process, by project; guarded by mu
	used     map[string]used            // by project and worker; guarded by mu
	problem  string                     // for which it takes no messages; empty: it does; guarded by mu
}

// Open starts a hub. A second one in the same folder is refused.
func Open(ctx context.Context, c Config) (_ *Hub, err error) {
	if c.Store <= 0 {
		c.Store = link.DefaultStore
	}
	h := &Hub{cfg: c, accounts: map[string]*server.Account{}, ensured: map[string]bool{},
		conns: map[string]*nats.Conn{}, used: map[string]used{}}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, fmt.Errorf("open hub: listen at %.100q: %w", c.Listen, err)
	}
	number, err := strconv.Atoi(port)
	if err != nil || number < 0 || number > 65535 {
		return nil, fmt.Errorf("open hub: listen at %.100q: the port is not a number", c.Listen)
	}
	if number == 0 {
		number = server.RANDOM_PORT
	}
	if err := h.lock(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			h.unlock()
		}
	}()
	if h.members, err = members.Open(c.Root, c.Dir); err != nil {
		return nil, err
	}
	o := &server.Options{
		ServerName:                 "drover-" + c.Name,
		Host:                       host,
		Port:                       number,
		NoSigs:                     true,
		NoLog:                      true,
		JetStream:                  true,
		StoreDir:                   storeDir(c.Dir),
		JetStreamMaxStore:          allStore,
		JetStreamMaxMemory:         maxMemory,
		MaxPayload:                 fleetwire.MaxMessage + 64<<10,
		MaxPending:                 64 << 20,
		MaxConn:                    members.Max,
		MaxControlLine:             8 << 10,
		PingInterval:               fleetwire.HeartBeat,
		MaxPingsOut:                2,
		WriteDeadline:              10 * time.Second,
		AlwaysEnableNonce:          true,
		CustomClientAuthentication: h,
		NoSystemAccount:            false,
	}
	if !addresses.Loopback(host) {
		cert, pin, err := h.certificate()
		if err != nil {
			return nil, err
		}
		h.pin, o.TLS = pin, true
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}
	}
	if h.server, err = server.NewServer(o); err != nil {
		return nil, fmt.Errorf("open hub: %w", err)
	}
	if err := h.start(); err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	h.stop = stop
	h.watcher.Go(func() { h.watch(life) })
	return h, nil
}

// start starts the server, and returns when it listens.
func (h *Hub) start() error {
	failed := make(chan string, 1)
	h.server.SetLogger(logger{h.cfg.Log, failed}, false, false)
	h.server.Start()
	why := "it has not started in " + ready.String()
wait:
	for late := time.Now().Add(ready); time.Now().Before(late); {
		if h.server.ReadyForConnections(ready / 200) {
			return nil
		}
		select {
		case why = <-failed:
			break wait
		default:
		}
	}
	h.server.Shutdown()
	return fmt.Errorf("open hub at %s: %s (is another hub there? choose another port with --listen)", h.cfg.Listen, why)
}

// lock makes the folder, and takes it for this process.
func (h *Hub) lock() error {
	if err := h.cfg.Root.Ensure(); err != nil {
		return err
	}
	if err := h.cfg.Root.Below().Mkdir(h.cfg.Dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("open hub: %w", err)
	}
	f, err := h.cfg.Root.Below().Open(filepath.Join(h.cfg.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open hub: %w", err)
	}
	if err := home.Flock(f); err != nil {
		_ = f.Close()
		return fmt.Errorf("open hub: another one has the folder %s (one hub for each user: `drover hub status`): %w",
			h.cfg.Dir, err)
	}
	h.unlock = func() { _ = f.Close() }
	return nil
}

func storeDir(dir string) string { return filepath.Join(dir, "jetstream") }

// Describe writes down where the hub is, and a line by which sessions of this user join it.
func (h *Hub) Describe(ctx context.Context, version string) error {
	about := members.About{Address: h.Address(), Pin: h.pin, PID: os.Getpid(), Version: version}
	if err := h.members.Describe(about); err != nil {
		return err
	}
	if old, err := h.cfg.Root.ReadFile(link.OwnFile(h.cfg.Dir), maxFile); err == nil { // it stays valid
		if j, err := link.ParseJoin(string(old)); err == nil && j.Pin == h.pin {
			j.Address = h.Address()
			return errors.Join(h.ensure(ctx, members.DefaultProject),
				h.cfg.Root.WriteAtomic(link.OwnFile(h.cfg.Dir), []byte(j.String()+"\n")))
		}
	}
	j, err := h.Join(ctx, members.DefaultProject, link.RoleSession, "")
	if err != nil {
		return err
	}
	return h.cfg.Root.WriteAtomic(link.OwnFile(h.cfg.Dir), []byte(j.String()+"\n"))
}

// Close ends the hub. The messages that it has accepted are in its folder.
func (h *Hub) Close() {
	h.stop()
	h.watcher.Wait()
	for _, conn := range h.conns {
		conn.Close()
	}
	h.server.Shutdown()
	h.server.WaitForShutdown()
	h.unlock()
}

// Address is where it listens.
func (h *Hub) Address() string { return h.server.Addr().String() }

// TLS reports whether it speaks TLS.
func (h *Hub) TLS() bool { return h.pin != "" }

func (h *Hub) log(text string) { h.cfg.Log.Warn(text) }

// account returns the account of a project, with JetStream.
func (h *Hub) account(project string) (*server.Account, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.accounts[project]; a != nil {
		return a, nil
	}
	a, fresh := h.server.LookupOrRegisterAccount("DROVER_" + project)
	if fresh {
		if err := a.EnableJetStream(nil, nil); err != nil {
			return nil, fmt.Errorf("open project %s: %w", project, err)
		}
	}
	h.accounts[project] = a
	return a, nil
}

// Join makes a line that lets a role into a project. address is where others reach the hub; empty:
// where it listens.
func (h *Hub) Join(ctx context.Context, project, role, address string) (link.Join, error) {
	secret, err := h.members.Admit(project, role)
	if err != nil {
		return link.Join{}, err
	}
	j := link.Join{Address: address, Project: project, Token: secret, Pin: h.pin}
	if address == "" {
		j.Address = h.Address()
	}
	return j, h.ensure(ctx, project)
}

// ensure makes the streams of a project.
func (h *Hub) ensure(ctx context.Context, project string) error {
	h.mu.Lock()
	done := h.ensured[project]
	h.mu.Unlock()
	if done {
		return nil
	}
	conn, err := h.enter(project)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("open project %s: %w", project, err)
	}
	if err := link.Ensure(ctx, js, h.cfg.Store); err != nil {
		return fmt.Errorf("open project %s: %w", project, err)
	}
	h.mu.Lock()
	h.ensured[project] = true
	h.mu.Unlock()
	return nil
}

// logger takes what the server wants to tell.
type logger struct {
	to     *slog.Logger
	failed chan<- string // capacity 1: why it cannot continue
}

func (l logger) Noticef(string, ...any)            {}
func (l logger) Debugf(string, ...any)             {}
func (l logger) Tracef(string, ...any)             {}
func (l logger) Warnf(format string, args ...any)  { l.to.Warn(fmt.Sprintf(format, args...)) }
func (l logger) Errorf(format string, args ...any) { l.to.Error(fmt.Sprintf(format, args...)) }
func (l logger) Fatalf(format string, args ...any) {
	select {
	case l.failed <- fmt.Sprintf(format, args...):
	default: // the first reason counts
	}
}
