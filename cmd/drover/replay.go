package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/teleport"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/prompt"
	"github.com/drover-dev/drover/internal/model/provider"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/replay"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/task"
)

// taped is how a prompt is recorded or played. A nil taped does neither.
type taped struct {
	session task.ID
	seam    environment.Seam
	play    *replay.Player // nil: nothing is played
	model   string         // of the main agent of a recording
	quiet   bool
	live    bool    // the run turns live after what is played
	hidden  *hidden // what no recording contains; nil: nothing is left out
}

func (t *taped) plays() bool  { return t != nil && t.play != nil }
func (t *taped) silent() bool { return t != nil && t.quiet }

// setUp puts the seam into the session that is opened with c.
func (t *taped) setUp(c *assemble.Config) {
	if t == nil {
		return
	}
	c.Session, c.Seam = t.session, t.seam
	t.hidden.of(*c)
	if !t.plays() || t.live {
		return
	}
	c.Observer, c.Own, c.Model, c.Fallback = nil, map[string]agent.Model{provider.AnyName: unasked{}}, t.model, nil
	set := &c.Settings // what the user has set up runs nothing in a replay
	set.DisableHook, set.Sandbox.Mode, set.MaxBudget, set.Plugins = true, "off", 0, nil
	c.GivenMCP, c.MCP, c.QuietPlugins, c.Played = true, nil, nil, true
}

// unasked is the model of a replay, whose answers are recorded.
type unasked struct{}

func (unasked) Reply(context.Context, *agent.Request, func(agent.Part)) (*agent.Reply, error) {
	return nil, &agent.ModelError{Kind: "replay", Text: "a replay asks no model"}
}

// head is that of a recording of a new session.
func (b prompts) head(p *prompt.Prompt, id task.ID) (replay.Head, error) {
	kept := *p
	kept.Settings, kept.MCP = "", nil // they may hold keys
	kept.Agents = withoutServers(kept.Agents)
	raw, err := json.Marshal(kept)
	return replay.Head{Drover: b.version, Created: time.Now().UTC(), Session: id, Folder: b.cwd,
		State: b.root.Project(b.cwd).Session(id).Dir(), Prompt: raw}, err
}

// Record answers a prompt and records the run.
func (b prompts) Record(ctx context.Context, p *prompt.Prompt, w io.Writer) error {
	id := task.ID(p.Session)
	if id == "" {
		id = task.NewSessionID()
	}
	h, err := b.head(p, id)
	if err != nil {
		return &prompt.RecordError{Err: err}
	}
	t := &taped{session: id, hidden: &hidden{}}
	t.hidden.add(teleport.Secrets(b.env)...)
	rec := replay.NewRecorder(w, h, t.hidden.text, environment.Unrecorded{})
	t.seam = rec
	answer := b.answerOn(ctx, p, id, t)
	if err := rec.Close(); err != nil {
		return &prompt.RecordError{Err: errors.Join(err, answer)}
	}
	return answer
}

// replayPatience is how long a replay waits for what was recorded next while nothing happens.
const replayPatience = 60 * time.Second

// Replay plays a recording in a new session.
func (b prompts) Replay(ctx context.Context, r prompt.Replay) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	p, id := r.Prompt, task.NewSessionID()
	p.Session = ""
	h, err := b.head(p, id)
	if err != nil {
		return err
	}
	was := r.Recording.Head
	h.Of = &replay.Place{Session: was.Session, Folder: was.Folder, State: was.State}
	play := replay.NewPlayer(replay.Config{Recording: r.Recording, Session: id, Names: replay.NamesOf(h), Speed: r.Speed,
		Patience: replayPatience, Diverged: end, Until: r.Until})
	t := &taped{session: id, seam: play, play: play, model: r.Recording.Model(), quiet: r.Check != nil, live: r.Until > 0}
	if r.Check == nil {
		return errors.Join(b.answerOn(ctx, p, id, t), t.missing(ctx))
	}
	var again bytes.Buffer
	rec := replay.NewRecorder(&again, h, nil, play)
	t.seam = rec
	err = b.answerOn(ctx, p, id, t)
	if diverged := play.Err(); diverged != nil {
		return diverged
	}
	if closed := rec.Close(); closed != nil {
		return errors.Join(closed, err)
	}
	has, read := replay.Read(&again)
	if read != nil {
		return errors.Join(read, err)
	}
	return report(r.Check, r.Recording, has)
}

// missing says what was recorded and has not happened in a replay that came to its end.
func (t *taped) missing(ctx context.Context) error {
	if ctx.Err() != nil || t.play.Err() != nil || t.play.Missing() == "" {
		return nil
	}
	return &replay.Divergence{Text: t.play.Missing() + " was recorded, and has not come"}
}

// report prints where a replay differs.
func report(w io.Writer, was, has *replay.Recording) error {
	const most = 50
	all := replay.Compare(was, has)
	for i, d := range all {
		if i == most {
			fmt.Fprintf(w, "… and %s more\n", console.Plural(len(all)-most, "difference"))
			break
		}
		fmt.Fprintf(w, "%s\n", d.Where)
		for _, side := range []struct{ mark, text string }{{"-", d.Was}, {"+", d.Has}} {
			if side.text != "" {
				fmt.Fprintf(w, "  %s %s\n", side.mark, excerpt.Line(side.text, 400))
			}
		}
	}
	count := map[replay.Kind]int{replay.ToolEntry: was.Tools()}
	for _, e := range was.Entries {
		if e.Kind != replay.ToolEntry {
			count[e.Kind]++
		}
	}
	summary := fmt.Sprintf("%s, %s, %s", console.Plural(count[replay.CallEntry], "model call"),
		console.Plural(count[replay.ToolEntry], "tool call"), console.Plural(count[replay.EventEntry], "event"))
	if len(all) == 0 {
		_, err := fmt.Fprintf(w, "no difference: %s\n", summary)
		return err
	}
	return &console.ExitError{Code: 1, Err: fmt.Errorf("the replay differs from the recording in %s (%s)",
		console.Plural(len(all), "place"), summary)}
}
