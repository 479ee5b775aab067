package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
)

// partTime limits one access to the store of parts.
const partTime = 10 * time.Second

// used is how much a worker has put into the store of a project.
type used struct {
	since time.Time
	bytes int64
}

// part gives a worker the part of a folder of which it knows the digest, or takes one from it. A worker has no access
// to the store itself: a subject with a wildcard would read parts of others there, and a header could remove them.
func (h *Hub) part(ctx context.Context, project string, js jetstream.JetStream, m *nats.Msg) {
	tokens := strings.Split(m.Subject, ".")
	what, worker := tokens[len(tokens)-2], tokens[len(tokens)-1]
	ctx, cancel := context.WithTimeout(ctx, partTime)
	defer cancel()
	answer := nats.NewMsg(m.Reply)
	var err error
	switch what {
	case fleetwire.PutPart:
		err = h.putPart(ctx, project+"."+worker, js, m.Data)
	case fleetwire.GetPart:
		answer.Data, err = getPart(ctx, js, string(m.Data))
	}
	var final *refusal
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		answer.Header.Set(fleetwire.PartStatus, fleetwire.PartMissing)
	case errors.As(err, &final):
		answer.Header.Set(fleetwire.PartStatus, fleetwire.PartRefused)
	case err != nil:
		answer.Header.Set(fleetwire.PartStatus, fleetwire.PartLater)
	}
	if err != nil {
		answer.Data = []byte(err.Error())
	}
	_ = m.RespondMsg(answer) // the worker asks again
}

// refusal is an answer that another try does not change.
type refusal struct{ why string }

func (e *refusal) Error() string { return e.why }

func getPart(ctx context.Context, js jetstream.JetStream, digest string) ([]byte, error) {
	if raw, err := hex.DecodeString(digest); err != nil || len(raw) != sha256.Size {
		return nil, &refusal{fmt.Sprintf("%.80q is no digest of a part", digest)}
	}
	s, err := js.Stream(ctx, "KV_"+fleetwire.Parts)
	if err != nil {
		return nil, err
	}
	m, err := s.GetLastMsgForSubject(ctx, fleetwire.PartAt(digest))
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

func (h *Hub) putPart(ctx context.Context, worker string, js jetstream.JetStream, data []byte) error {
	quota := h.cfg.Store / 2
	now := time.Now()
	h.mu.Lock()
	u := h.used[worker]
	if now.Sub(u.since) > fleetwire.MessagesAge {
		u = used{since: now}
	}
	u.bytes += int64(len(data))
	if u.bytes <= quota {
		h.used[worker] = u
	}
	h.mu.Unlock()
	if u.bytes > quota {
		return &refusal{fmt.Sprintf("the worker has sent its quota of folders, %d MiB since %s (half of the store; "+
			"it may send again %s after that)", quota>>20, u.since.Format(time.DateTime), fleetwire.MessagesAge)}
	}
	sum := sha256.Sum256(data) // whatever the worker calls it
	_, err := js.Publish(ctx, fleetwire.PartAt(hex.EncodeToString(sum[:])), data)
	return err
}
