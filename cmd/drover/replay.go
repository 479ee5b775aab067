package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/teleport"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/prompt"
	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/replay/player"
	"github.com/drover-dev/drover/internal/replay/recorder"
	"github.com/drover-dev/drover/internal/replay/recording"
	"github.com/drover-dev/drover/task"
)

// tape is what stands around the session of a prompt: a recorder, a player, or a recorder around
// a player. A nil tape does nothing.
type tape struct {
	session task.ID
	rec     *recorder.Recorder // nil: nothing is recorded
	play    *player.Player     // nil: nothing is played
	model   string             // of the main agent, of a recording
	quiet   bool
	live    bool    // the run goes on behind what is played
	hidden  *hidden // what no recording contains; nil: nothing is left out
}

func (t *tape) plays() bool  { return t != nil && t.play != nil }
func (t *tape) silent() bool { return t != nil && t.quiet }

// setUp puts the tape around the session that is opened with c.
func (t *tape) setUp(c *assemble.Config) {
	if t == nil {
		return
	}
	c.Session, c.Tape = t.session, t
	t.hidden.of(*c)
	if !t.plays() {
		c.Observer = observers(slices.DeleteFunc([]assemble.Observer{c.Observer, t.observer()},
			func(o assemble.Observer) bool { return o == nil }))
		return
	}
	if t.live {
		c.Observer = observers(slices.DeleteFunc([]assemble.Observer{c.Observer, t.observer()},
			func(o assemble.Observer) bool { return o == nil }))
		return
	}
	c.Observer, c.Own, c.Model, c.Fallback = t.observer(), t.play.Models(), t.model, nil
	set := &c.Settings // what the user has set up runs nothing in a replay
	set.DisableHook, set.Sandbox.Mode, set.MaxBudget, set.Plugins = true, "off", 0, nil
	c.GivenMCP, c.MCP, c.QuietPlugins, c.Played = true, nil, nil, true
}

// Model implements [assemble.Tape].
func (t *tape) Model(name string, m agent.Model) agent.Model {
	if t.play != nil {
		m = t.play.Model(name, m)
	}
	if t.rec != nil {
		m = t.rec.Model(name, m)
	}
	return m
}

// Loop implements [assemble.Tape].
func (t *tape) Loop(id task.ID, c *agent.Config) {
	if t.play != nil {
		t.play.Loop(id, c)
	}
	if t.rec != nil {
		t.rec.Loop(id, c)
	}
}

// Work implements [assemble.Tape].
func (t *tape) Work(d task.Driver, spec task.Spec) (task.Driver, task.ID) {
	if t.play != nil {
		return t.play.Work(d, spec)
	}
	return d, ""
}

// Text implements [assemble.Tape].
func (t *tape) Text(id task.ID, what string, get func() (string, error)) (string, error) {
	text := get
	if t.play != nil {
		text = func() (string, error) {
			have, err := get()
			return t.play.Text(id, what, have, err)
		}
	}
	if t.rec != nil {
		return t.rec.Text(id, what, text)
	}
	return text()
}

// Command implements [assemble.Tape].
func (t *tape) Command(run func(agent.Call), expand func() (*string, []agent.Call, error)) (*string, error) {
	one := expand
	if t.play != nil {
		one = func() (*string, []agent.Call, error) {
			text, recorded, err := t.play.Command(run)
			if recorded {
				return text, nil, err
			}
			return expand()
		}
	}
	if t.rec != nil {
		return t.rec.Command(one)
	}
	text, _, err := one()
	return text, err
}

// Works implements [assemble.Tape].
func (t *tape) Works(id task.ID, works bool) bool {
	if t.play != nil {
		works = t.play.Works(id, works)
	}
	if t.rec != nil {
		t.rec.Works(id, works)
	}
	return works
}

// Checkout implements [assemble.Tape].
func (t *tape) Checkout(ctx context.Context, id task.ID, open func(context.Context) (*worktree.Tree, error),
) (*worktree.Tree, error) {
	var tree *worktree.Tree
	if t.play != nil {
		was, real, err := t.play.Checkout(id)
		if err != nil {
			return nil, err
		}
		if !real {
			tree = &worktree.Tree{Task: id, Path: was.Path, Dir: was.Dir, Branch: was.Branch, Repo: was.Repo, Common: was.Common}
		}
	}
	if tree == nil {
		var err error
		if tree, err = open(ctx); err != nil {
			return nil, err
		}
	}
	if t.rec != nil {
		t.rec.Checkout(id, recording.Tree{Path: tree.Path, Dir: tree.Dir, Branch: tree.Branch, Repo: tree.Repo,
			Common: tree.Common})
	}
	return tree, nil
}

// Left implements [assemble.Tape].
func (t *tape) Left(id task.ID, leave func() *task.Worktree) *task.Worktree {
	var w *task.Worktree
	if t.play != nil {
		w = t.play.Left(id)
	}
	if w == nil {
		w = leave()
	}
	if t.rec != nil {
		t.rec.Left(id, w)
	}
	return w
}

// Told implements [assemble.Tape].
func (t *tape) Told(m task.Message) {
	if t.rec != nil {
		t.rec.Told(m)
	}
}

// Mail implements [assemble.Tape].
func (t *tape) Mail(ctx context.Context, m task.Message, post func() (task.Seq, error)) (task.Seq, error) {
	one := post
	if t.rec != nil {
		one = func() (task.Seq, error) { return t.rec.Sent(m, post) }
	}
	if t.play != nil {
		return t.play.Mail(ctx, m, one)
	}
	return one()
}

func (t *tape) observer() assemble.Observer { return taped{t} }

// taped gives a tape the log of its session.
type taped struct{ *tape }

func (taped) Agent(task.ID, agent.Event) {}

func (t taped) Open(s *assemble.Session) {
	if t.rec != nil {
		t.rec.Open(s)
	}
	if t.play != nil {
		t.play.Open(s)
	}
}

func (t taped) Ended(last task.Seq) {
	if t.rec != nil {
		t.rec.Ended(last)
	}
}

func (taped) Close() {}

// head is that of a recording of a new session.
func (b prompts) head(p *prompt.Prompt, id task.ID) (recording.Head, error) {
	kept := *p
	kept.Settings, kept.MCP = "", nil // they may hold keys
	kept.Agents = withoutServers(kept.Agents)
	raw, err := json.Marshal(kept)
	return recording.Head{Drover: b.version, Created: time.Now().UTC(), Session: id, Folder: b.cwd,
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
	t := &tape{session: id, hidden: &hidden{}}
	t.hidden.add(teleport.Secrets(b.env)...)
	t.rec = recorder.New(w, h, t.hidden.text)
	answer := b.answerOn(ctx, p, id, t)
	if err := t.rec.Close(); err != nil {
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
	h.Of = &recording.Place{Session: was.Session, Folder: was.Folder, State: was.State}
	t := &tape{session: id, quiet: r.Check != nil, live: r.Until > 0}
	for _, e := range r.Recording.Entries {
		if e.Kind == recording.Call && e.Agent == r.Recording.Head.Session {
			t.model = e.Request.Name
			break
		}
	}
	t.play = player.New(player.Config{Recording: r.Recording, Session: id, Names: recording.NamesOf(h), Speed: r.Speed,
		Patience: replayPatience, Diverged: end, Until: r.Until})
	if r.Check == nil {
		return errors.Join(b.answerOn(ctx, p, id, t), t.missing(ctx))
	}
	var again bytes.Buffer
	t.rec = recorder.New(&again, h, nil)
	err = b.answerOn(ctx, p, id, t)
	if diverged := t.play.Err(); diverged != nil {
		return diverged
	}
	if closed := t.rec.Close(); closed != nil {
		return errors.Join(closed, err)
	}
	has, read := recording.Read(&again)
	if read != nil {
		return errors.Join(read, err)
	}
	return report(r.Check, r.Recording, has)
}

// missing says what was recorded and has not happened in a replay that came to its end.
func (t *tape) missing(ctx context.Context) error {
	if ctx.Err() != nil || t.play.Err() != nil || t.play.Missing() == "" {
		return nil
	}
	return &player.Divergence{Text: t.play.Missing() + " was recorded, and has not come"}
}

// report prints where a replay differs.
func report(w io.Writer, was, has *recording.Recording) error {
	const most = 50
	all := recording.Compare(was, has)
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
	count := map[recording.Kind]int{}
	for _, e := range was.Entries {
		count[e.Kind]++
	}
	summary := fmt.Sprintf("%s, %s, %s", console.Plural(count[recording.Call], "model call"),
		console.Plural(count[recording.Tool], "tool call"), console.Plural(count[recording.Event], "event"))
	if len(all) == 0 {
		_, err := fmt.Fprintf(w, "no difference: %s\n", summary)
		return err
	}
	return &console.ExitError{Code: 1, Err: fmt.Errorf("the replay differs from the recording in %s (%s)",
		console.Plural(len(all), "place"), summary)}
}
