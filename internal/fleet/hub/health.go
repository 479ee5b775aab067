package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/link"
)

// Rooms on the disk of a hub. A server whose write has failed takes nothing more until it is opened again, so it is
// closed a little earlier, and opened with some distance to the next time.
const (
	leastRoom  = 16 << 20
	enoughRoom = 64 << 20
)

// How often the hub looks at itself, and how soon it repeats a failed attempt.
const (
	lookEvery = time.Second
	tryEvery  = 10 * time.Second
)

// watch closes and opens what the hub keeps on its disk, as there is room, and lets each project ask how the hub is.
func (h *Hub) watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		h.look(time.Now())
		h.attend(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look finds the problem of the hub, and ends it if that is possible.
func (h *Hub) look(now time.Time) {
	if h.server.JetStreamEnabled() {
		problem := h.failure()
		// A stream that is just being made has its folder first.
		perhaps := strings.HasSuffix(problem, "could not be recovered") && problem != h.suspect
		h.suspect = problem
		if problem == "" || perhaps {
			h.set("")
			return
		}
		_ = h.server.ShutdownJetStream() // no part of it is to take what another refuses
		h.set(problem)
		h.retry = now
	}
	room, err := h.cfg.Root.Space()
	switch {
	case err != nil:
		h.set(err.Error())
		return
	case room.Bytes < enoughRoom || room.NoFiles():
		h.set(fmt.Sprintf("its disk is full: %d MiB are free at %s (nothing is lost; it goes on by itself with %d MiB)",
			room.Bytes>>20, h.cfg.Dir, enoughRoom>>20))
		return
	case now.Before(h.retry):
		return
	}
	h.retry = now.Add(tryEvery)
	if err := h.reopen(); err != nil {
		h.set("its store cannot be opened: " + err.Error())
		return
	}
	h.set("")
}

// failure is why the store takes nothing more, or soon will not; empty: it does.
func (h *Hub) failure() string {
	if s := h.server.Healthz(&server.HealthzOptions{}); s.Error != "" {
		return "a write to its store has failed: " + s.Error
	}
	if room, err := h.cfg.Root.Space(); err == nil && (room.Bytes < leastRoom || room.NoFiles()) {
		return "its disk is full"
	}
	return ""
}

// reopen opens the store and keeps its content.
func (h *Hub) reopen() error {
	if err := h.server.EnableJetStream(&server.JetStreamConfig{
		StoreDir: storeDir(h.cfg.Dir), MaxMemory: maxMemory, MaxStore: allStore, Strict: true,
	}); err != nil {
		_ = h.server.ShutdownJetStream()
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.accounts {
		if !a.JetStreamEnabled() {
			if err := a.EnableJetStream(nil, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// set stores the problem, which clients may ask for, and logs changes of it.
func (h *Hub) set(problem string) {
	h.mu.Lock()
	was := h.problem
	h.problem = problem
	h.mu.Unlock()
	switch {
	case problem == "" && was != "":
		h.log("the hub takes messages again")
	case problem != "" && was == "":
		h.log("the hub takes no messages: " + problem)
	}
}

// attend answers [fleetwire.HubState] in each project that has had a client, and makes its streams.
func (h *Hub) attend(ctx context.Context) {
	h.mu.Lock()
	var fresh []string
	for project := range h.accounts {
		if h.conns[project] == nil {
			fresh = append(fresh, project)
		}
	}
	h.mu.Unlock()
	for _, project := range fresh {
		conn, err := h.enter(project)
		if err != nil {
			h.log(err.Error())
			continue
		}
		_, err = conn.Subscribe(fleetwire.AskHub, h.answer)
		js, failed := jetstream.New(conn)
		if err = errors.Join(err, failed); err == nil {
			_, err = conn.Subscribe(fleetwire.PartOf("*", "*"), func(m *nats.Msg) { h.part(ctx, project, js, m) })
		}
		if err != nil {
			h.log(fmt.Sprintf("open project %s: %v", project, err))
			conn.Close()
			continue
		}
		h.mu.Lock()
		h.conns[project] = conn
		h.mu.Unlock()
		one, cancel := context.WithTimeout(ctx, tryEvery)
		if err := h.ensure(one, project); err != nil && ctx.Err() == nil {
			h.log(err.Error())
		}
		cancel()
	}
}

func (h *Hub) answer(m *nats.Msg) {
	h.mu.Lock()
	state := fleetwire.HubState{Problem: h.problem}
	h.mu.Unlock()
	if data, err := json.Marshal(state); err == nil {
		_ = m.Respond(append(data, '\n'))
	}
}

// enter connects this process to a project.
func (h *Hub) enter(project string) (*nats.Conn, error) {
	secret := h.members.Temporary(project)
	defer h.members.Expel(secret)
	conn, err := nats.Connect("", nats.InProcessServer(h.server), nats.Token(secret), nats.Name(link.RoleSession+".hub"))
	if err != nil {
		return nil, fmt.Errorf("open project %s: %w", project, err)
	}
	return conn, nil
}
