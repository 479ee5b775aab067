package acpclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/agent"
)

var errUnknownSession = errors.New("the session is unknown")

// maxFile is how many bytes of a file fit into a message.
const maxFile = 4 << 20

// read answers fs/read_text_file.
func (c *conn) read(_ context.Context, r acp.ReadTextFileRequest) (any, error) {
	if err := c.about(r.SessionId, r.Path); err != nil {
		return nil, err
	}
	o := &tool{}
	if err := c.denied(one(o.as("Read", map[string]any{"file_path": r.Path}))); err != nil {
		return nil, err
	}
	text, err := c.a.o.Files.Read(c.life, r.Path)
	if err != nil {
		return nil, err
	}
	text = part(text, r.Line, r.Limit)
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s has %d bytes, more than %d: ask for a part of it by line and limit", r.Path, len(text), maxFile)
	}
	return map[string]string{"content": text}, nil
}

// part returns lines of a text. The first line has the number 1.
func part(text string, from, limit *int) string {
	if from == nil && limit == nil {
		return text
	}
	all := strings.SplitAfter(text, "\n")
	if from != nil {
		all = all[min(max(*from, 1)-1, len(all)):]
	}
	if limit != nil {
		all = all[:min(max(*limit, 0), len(all))]
	}
	return strings.Join(all, "")
}

// write answers fs/write_text_file.
func (c *conn) write(_ context.Context, r acp.WriteTextFileRequest) (any, error) {
	if err := c.about(r.SessionId, r.Path); err != nil {
		return nil, err
	}
	o := &tool{}
	if err := c.denied(one(o.as("Write", map[string]any{"file_path": r.Path, "content": r.Content}))); err != nil {
		return nil, err
	}
	if err := c.a.o.Files.Write(c.life, r.Path, r.Content); err != nil {
		return nil, err
	}
	c.a.say("wrote %d bytes to %s", len(r.Content), line(r.Path, 300))
	return nil, nil
}

// about refuses a request for another session, or for a path that is not absolute.
func (c *conn) about(session acp.SessionId, path string) error {
	switch {
	case string(session) != c.session:
		return errUnknownSession
	case !filepath.IsAbs(path):
		return fmt.Errorf("the path %.200q is not absolute", path)
	}
	return nil
}

// permission answers session/request_permission. To allow a call it chooses only an option for one time.
func (c *conn) permission(ctx context.Context, r permissionRequest) (any, error) {
	answer := func(o acp.RequestPermissionOutcome) (any, error) {
		return acp.RequestPermissionResponse{Outcome: o}, nil
	}
	cancelled := acp.NewRequestPermissionOutcomeCancelled()
	t := c.turn.Load()
	if t == nil || r.SessionID != c.session { // no turn could want it
		return answer(cancelled)
	}
	t.mu.Lock()
	o := t.merge(r.ToolCall.toolCall, blocks(r.ToolCall.Content))
	if o == nil {
		o = &tool{toolCall: r.ToolCall.toolCall, content: blocks(r.ToolCall.Content)}
	}
	w := o.wants(c.a.o.Dir)
	t.mu.Unlock()
	ask, done := context.WithCancelCause(ctx)
	defer done(nil)
	stop := context.AfterFunc(t.ctx, func() { done(context.Cause(t.ctx)) })
	defer stop()
	d, err := c.a.o.Permit(ask, w)
	if err != nil || ask.Err() != nil {
		return answer(cancelled) // the answer of the protocol to a failed question
	}
	if d.Allow {
		if id := option(r.Options, acp.PermissionOptionKindAllowOnce); id != "" {
			return answer(acp.NewRequestPermissionOutcomeSelected(id))
		}
		d.Reason = "it was allowed once, and the agent offers only to allow it always"
	}
	denied := w.Shown.Name + " was not allowed: " + line(d.Reason, 500)
	c.a.say("%s", denied)
	t.mu.Lock()
	t.did("[" + denied + "]")
	t.denied = denied
	t.mu.Unlock()
	id := cmp.Or(option(r.Options, acp.PermissionOptionKindRejectOnce),
		option(r.Options, acp.PermissionOptionKindRejectAlways))
	if id == "" {
		return answer(cancelled)
	}
	return answer(acp.NewRequestPermissionOutcomeSelected(id))
}

// option returns the ID of the first option of a kind.
func option(of []acp.PermissionOption, kind acp.PermissionOptionKind) acp.PermissionOptionId {
	for _, o := range of {
		if o.Kind == kind && o.OptionId != "" {
			return o.OptionId
		}
	}
	return ""
}

// denied returns an error for the agent if a call is not allowed.
func (c *conn) denied(w Wanted) error {
	ctx := c.life
	if t := c.turn.Load(); t != nil {
		ctx = t.ctx
	}
	d, err := c.a.o.Permit(ctx, w)
	if err != nil {
		return err
	}
	if !d.Allow {
		return &refusal{d.Reason}
	}
	return nil
}

type refusal struct{ text string }

func (e *refusal) Error() string { return "denied: " + e.text }

// one is a single call that is understood.
func one(call agent.Call) Wanted {
	return Wanted{Calls: []agent.Call{call}, Understood: true, Shown: call}
}
