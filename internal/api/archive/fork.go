package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/stored"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/picture"
	"github.com/drover-dev/drover/task"
)

// promptBytes is how much of a prompt is listed.
const promptBytes = 16 << 10

// Prompts returns the prompts of the user in a conversation.
func Prompts(place home.Session) (control.Prompts, error) {
	out := control.Prompts{Prompts: []control.PromptEntry{}}
	all, err := agent.Prompts(place.Transcript())
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	first := max(0, len(all)-control.MaxPrompts)
	for i, p := range all[first:] {
		e := control.PromptEntry{N: first + i + 1, ID: p.ID, At: p.At}
		e.Text = strings.ToValidUTF8(p.Text[:min(len(p.Text), promptBytes)], "")
		e.Cut = len(p.Text) - len(e.Text)
		out.Prompts = append(out.Prompts, e)
	}
	return out, nil
}

// Fork makes a new session of the same project with the conversation of a
// session, whole or up to a prompt. It copies neither mail nor tasks.
func Fork(place home.Session, req control.ForkRequest, meta agent.Meta) (control.Forked, error) {
	out := control.Forked{}
	var at agent.UserPrompt
	if req.At > 0 {
		all, err := agent.Prompts(place.Transcript())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return out, fmt.Errorf("fork session %s: %w", place.ID(), err)
		}
		if req.At > len(all) {
			return out, control.Refuse(control.NotFound,
				fmt.Sprintf("fork session %s: it has %d prompts, and no prompt %d", place.ID(), len(all), req.At),
				fmt.Sprintf("see `drover fork --list %s`", place.ID()))
		}
		at = all[req.At-1]
	} else if req.At < 0 {
		return out, control.Refuse(control.Invalid,
			fmt.Sprintf("fork session %s: prompt %d does not exist: prompts are counted from 1", place.ID(), req.At), "")
	}
	if req.Session != "" && !home.SessionID(string(req.Session)) {
		return out, control.Refuse(control.Invalid,
			fmt.Sprintf("fork session %s: %.40q is not the ID of a session", place.ID(), req.Session), "")
	}
	fresh := place.Project().Session(cmp.Or(req.Session, task.NewSessionID()))
	taken := control.Refuse(control.Conflict,
		fmt.Sprintf("fork session %s: session %s exists already", place.ID(), fresh.ID()), "give --session-id another ID")
	if _, err := fresh.Below().Lstat(fresh.Dir()); err == nil {
		return out, taken
	}
	if err := fresh.Ensure(); err != nil {
		return out, fmt.Errorf("fork session %s: %w", place.ID(), err)
	}
	meta.AgentName, meta.SessionID = "main", string(fresh.ID())
	var err error
	if at.ID == "" {
		err = agent.ForkTranscript(place.Transcript(), fresh.Transcript(), meta)
	} else {
		err = agent.ForkTranscriptBefore(place.Transcript(), fresh.Transcript(), at.ID, meta)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return out, taken
	case err != nil:
		return out, fmt.Errorf("fork session %s: %w", place.ID(), err)
	}
	now := time.Now().UTC()
	old, _ := stored.ReadInfo(place) // without it the copy has no title
	info := control.Info{Session: fresh.ID(), Project: meta.Cwd, Title: old.Title, Role: control.RolePrompt,
		Version: meta.Version, Dir: fresh.Dir(), StartTime: now, EndTime: &now}
	if err := stored.WriteInfo(fresh, info); err != nil {
		return out, fmt.Errorf("fork session %s: %w", place.ID(), err)
	}
	out = control.Forked{Session: fresh.ID(), Prompt: at.Text}
	if req.Images && at.ID != "" {
		if out.Images, err = images(place, at.ID); err != nil {
			return control.Forked{}, fmt.Errorf("fork session %s: %w", place.ID(), err)
		}
	}
	return out, nil
}

// images returns the images of a prompt.
func images(place home.Session, prompt string) (list []control.Image, err error) {
	blocks, err := agent.PromptImages(place.Transcript(), prompt)
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(blocks); i += 2 {
		if name, ok := picture.Name(blocks[i].Text); ok {
			data, kind, err := picture.Content(blocks[i+1].Source)
			if err != nil {
				return nil, err
			}
			list = append(list, control.Image{Name: name, MediaType: kind, Data: data})
		}
	}
	return list, nil
}

// Prompts implements [control.API].
func (a *Archive) Prompts(context.Context) (control.Prompts, error) { return Prompts(a.place) }

// Fork implements [control.API].
func (a *Archive) Fork(ctx context.Context, req control.ForkRequest) (control.Forked, error) {
	info, err := a.Info(ctx)
	if err != nil {
		return control.Forked{}, err
	}
	return Fork(a.place, req, agent.Meta{Version: info.Version, Cwd: info.Project})
}
