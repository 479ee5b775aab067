package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/folder"
	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// parts is the store of parts of folders in the bucket of a project. A part is found by its digest only, and workers of
// a hub reach the bucket through it: a worker that knows a digest was granted the folder.
type parts struct {
	link *Link

	mu  sync.Mutex
	put map[string]bool // by this process; guarded by mu
}

// Parts is the store of folders.
func (l *Link) Parts() folder.Store { return &parts{link: l, put: map[string]bool{}} }

// Has asks the hub, if this is the link of a session: a worker must not, since who may ask for one part may list all.
// Without an answer the part is put again, which is harmless.
func (p *parts) Has(ctx context.Context, digest string) (bool, error) {
	p.mu.Lock()
	known := p.put[digest]
	p.mu.Unlock()
	if known || p.link.o.Role == RoleWorker {
		return known, nil
	}
	filter, err := json.Marshal(map[string]string{"subjects_filter": fleetwire.PartAt(digest)})
	if err != nil {
		return false, err
	}
	m, err := p.link.Conn.RequestWithContext(ctx, "$JS.API.STREAM.INFO.KV_"+fleetwire.Parts, filter)
	var info struct {
		State struct {
			Subjects map[string]uint64 `json:"subjects"`
		} `json:"state"`
	}
	if err == nil {
		err = json.Unmarshal(m.Data, &info)
	}
	return err == nil && info.State.Subjects[fleetwire.PartAt(digest)] > 0, nil
}

// Put publishes a part.
func (p *parts) Put(ctx context.Context, digest string, part []byte) error {
	var err error
	if p.byHub() {
		_, err = p.ask(ctx, fleetwire.PutPart, part)
	} else {
		err = p.link.Publish(ctx, fleetwire.PartAt(digest), "", part)
	}
	if err != nil {
		return fmt.Errorf("store part: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put[digest] = true
	return nil
}

// byHub reports whether only the hub itself has access to the bucket.
func (p *parts) byHub() bool { return p.link.o.Role == RoleWorker && p.link.o.Cluster == "" }

// ask asks the hub until it answers.
func (p *parts) ask(ctx context.Context, what string, data []byte) (got []byte, err error) {
	err = p.link.insist(ctx, func(one context.Context) error {
		m, err := p.link.Conn.RequestWithContext(one, fleetwire.PartOf(what, p.link.o.Name), data)
		if err != nil {
			return err
		}
		switch m.Header.Get(fleetwire.PartStatus) {
		case "":
			got = m.Data
			return nil
		case fleetwire.PartMissing:
			return final{folder.ErrMissing}
		case fleetwire.PartRefused:
			return final{fmt.Errorf("the hub refuses it: %s", excerpt.Line(string(m.Data), maxProblem))}
		}
		return errors.New(excerpt.Line(string(m.Data), maxProblem))
	})
	return got, err
}

// Get reads a part, from the bucket by a direct get of JetStream.
func (p *parts) Get(ctx context.Context, digest string) ([]byte, error) {
	if p.byHub() {
		got, err := p.ask(ctx, fleetwire.GetPart, []byte(digest))
		if err != nil && !errors.Is(err, folder.ErrMissing) {
			err = fmt.Errorf("get part: %w", err)
		}
		return got, err
	}
	subject := "$JS.API.DIRECT.GET.KV_" + fleetwire.Parts + "." + fleetwire.PartAt(digest)
	m, err := p.link.Conn.RequestWithContext(ctx, subject, nil)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, folder.ErrMissing
	}
	if err != nil {
		return nil, fmt.Errorf("get part: %w", err)
	}
	switch status := m.Header.Get("Status"); status {
	case "":
		return m.Data, nil
	case "404":
		return nil, folder.ErrMissing
	default:
		return nil, fmt.Errorf("get part: the hub answers %.20q %.100q", status, m.Header.Get("Description"))
	}
}
