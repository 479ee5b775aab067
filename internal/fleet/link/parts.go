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
)

// parts is the store of parts of folders in the bucket of a project. A part is found by its digest only, and workers
// cannot list parts: a worker that knows a digest was granted the folder.
type parts struct {
	link *Link

	mu  sync.Mutex
	put map[string]bool // by this process; guarded by mu
}

// Parts is the store of folders.
func (l *Link) Parts() folder.Store { return &parts{link: l, put: map[string]bool{}} }

func partSubject(digest string) string { return "$KV." + fleetwire.Parts + "." + digest }

// Has asks the hub, if this is the link of a session: a worker must not, since who may ask for one part may list all.
// Without an answer the part is put again, which is harmless.
func (p *parts) Has(ctx context.Context, digest string) (bool, error) {
	p.mu.Lock()
	known := p.put[digest]
	p.mu.Unlock()
	if known || p.link.o.Role == RoleWorker {
		return known, nil
	}
	filter, err := json.Marshal(map[string]string{"subjects_filter": partSubject(digest)})
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
	return err == nil && info.State.Subjects[partSubject(digest)] > 0, nil
}

// Put publishes a part.
func (p *parts) Put(ctx context.Context, digest string, part []byte) error {
	if err := p.link.Publish(ctx, partSubject(digest), "", part); err != nil {
		return fmt.Errorf("store part: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put[digest] = true
	return nil
}

// Get reads a part by a direct get of JetStream.
func (p *parts) Get(ctx context.Context, digest string) ([]byte, error) {
	m, err := p.link.Conn.RequestWithContext(ctx, "$JS.API.DIRECT.GET.KV_"+fleetwire.Parts+"."+partSubject(digest), nil)
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
