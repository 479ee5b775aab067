package attention

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/daypart"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

const (
	attentionAge    = 7 * 24 * time.Hour // a session that ended before has no item
	attentionEnded  = 100                // ended sessions that are read at most, the newest
	attentionBlocks = 2                  // tasks that wait, from which on a list says so
)

func (a *App) attention() *cobra.Command {
	cmd := &cobra.Command{
		Use: "attention [--watch] [--json]",
		Long: "List what needs you in all sessions of all projects, what holds up most first: sessions in which nothing\n" +
			"starts, questions of agents and of MCP servers, plans, commands that wait for input, agents that a limit\n" +
			"holds, and what you have not seen of ended tasks: failures in the background, and files made or changed that other\n" +
			"programs obey. Each item names the commands that answer it;\n" +
			"an answer in one terminal removes the item from all lists. Failures older than 7 days are left out.",
	}
	f := cmd.Flags()
	asJSON := f.Bool("json", false, "a JSON object; with --watch one a line for each item that comes or goes")
	watch := f.Bool("watch", false, "keep running and show changes, until q or Ctrl-C")
	here := f.Bool("project", false, "only sessions of this project")
	notify := f.String("notify", "none",
		"with --watch on a terminal, announce new items: none, bell, osc9, osc99 or osc777")
	when := f.String("notify-when", "any", "which items are announced: any, or blocking for all but failures")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		switch {
		case !slices.Contains([]string{"none", "bell", "osc9", "osc99", "osc777"}, *notify):
			return console.Usage(fmt.Sprintf("--notify %.40q: unknown", *notify), "use none, bell, osc9, osc99 or osc777")
		case !slices.Contains([]string{"any", "blocking"}, *when):
			return console.Usage(fmt.Sprintf("--notify-when %.40q: unknown", *when), "use any or blocking")
		case *notify != "none" && !*watch:
			return console.Usage("--notify requires --watch", "add --watch")
		case *watch:
			w := attentionWatch{a: a, all: !*here, json: *asJSON, notify: *notify, blocking: *when == "blocking"}
			return w.run(ctx)
		}
		list, _, err := a.Items(ctx, !*here)
		switch {
		case err != nil:
			return err
		case *asJSON:
			return console.PrintJSON(a.Stdout, list)
		case len(list.Items) == 0:
			return a.Println("Nothing needs you.")
		}
		_, err = a.Stdout.Write(attentionText(list, a.Now()))
		return err
	}
	cmd.AddCommand(a.attentionSeen(), a.attentionTest())
	return cmd
}

func (a *App) attentionTest() *cobra.Command {
	return &cobra.Command{
		Use:   "test",
		Short: "Send a test message by all ways that the settings under notify name",
		Long: "Send a test message by all ways that the settings under notify name, at any hour, and say what became of\n" +
			"each. It fails if one of them does.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			sent, err := a.TryNotify(cmd.Context())
			if err != nil {
				return err
			}
			if len(sent) == 0 {
				return console.Usage("send a test message: no way to you is set",
					"set notify.desktop, notify.command, notify.webhook or notify.ntfy: they are in settings.md")
			}
			bad := 0
			for _, s := range sent {
				line := console.Cell(s.Channel, 40) + ": sent"
				if s.Err != nil {
					bad++
					line = excerpt.Line(s.Channel+": "+s.Err.Error(), 400)
				}
				if _, err := fmt.Fprintln(a.Stdout, line); err != nil {
					return err
				}
			}
			if bad > 0 {
				return fmt.Errorf("send test messages: %d of %d were not sent (see above)", bad, len(sent))
			}
			return nil
		},
	}
}

// Items is the list of all sessions, with the session that each item is of. A
// session that does not answer is noted on stderr, and the others are listed.
func (a *App) Items(ctx context.Context, all bool) (control.Attention, map[task.ID]console.Session, error) {
	sessions, err := a.Known(ctx, false, all)
	if err != nil {
		return control.Attention{}, nil, err
	}
	ended := 0
	oldest := a.Now().Add(-attentionAge)
	sessions = slices.DeleteFunc(slices.Clone(sessions), func(s console.Session) bool {
		i := s.Info()
		if i.Live {
			return false
		}
		if console.EndedBefore(i.EndTime, oldest) || i.EndTime != nil && i.Tasks.Total == 0 {
			return true
		}
		ended++
		return ended > attentionEnded
	})
	lists, errs := console.Each(ctx, sessions, func(ctx context.Context, api control.API) (control.Attention, error) {
		return api.Attention(ctx, control.AttentionRequest{})
	})
	if ctx.Err() != nil {
		return control.Attention{}, nil, context.Cause(ctx)
	}
	of := map[task.ID]console.Session{}
	for i, err := range errs {
		if err != nil && !console.HostGone(err) {
			a.Note("%v", err)
		}
		of[sessions[i].Info().Session] = sessions[i]
	}
	return control.MergeAttention(lists), of, nil
}

// attentionText shows items for people, and nothing of them alive.
func attentionText(list control.Attention, now time.Time) []byte {
	var b bytes.Buffer
	for _, i := range list.Items {
		fmt.Fprintf(&b, "%s  %s", console.Cell(i.ID, 40), console.Cell(string(i.Kind), 40))
		if !i.Since.IsZero() {
			fmt.Fprintf(&b, "  %s", console.Ago(now, i.Since))
		}
		if i.Name != "" {
			fmt.Fprintf(&b, "  %s", console.Cell(i.Name, console.NameChars))
		}
		fmt.Fprintf(&b, "  in session %s", console.Cell(string(i.Session), 40))
		if i.Blocks >= attentionBlocks {
			fmt.Fprintf(&b, ", %d tasks wait", i.Blocks)
		}
		if i.Request != nil {
			b.WriteString(console.QuestionBody(*i.Request, now))
		} else {
			if !i.Until.IsZero() {
				fmt.Fprintf(&b, ", until %s", i.Until.Local().Format(time.TimeOnly))
			}
			fmt.Fprintf(&b, "\n  %s\n  %s\n", console.ExactCell(i.Why, 400), console.ExactCell(i.What, 200))
		}
		answers := make([]string, len(i.Answer))
		for k, answer := range i.Answer {
			answers[k] = "`" + console.Cell(answer, 200) + "`"
		}
		fmt.Fprintf(&b, "  %s\n", strings.Join(answers, " or "))
	}
	if list.More > 0 {
		fmt.Fprintf(&b, "%d more items are not shown\n", list.More)
	}
	return b.Bytes()
}

func (a *App) attentionSeen() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "seen (REF… | --all)",
		Short: "Mark the ends of tasks as seen",
		Long: "Mark the ends of tasks as seen, which removes them from the list. Marking one again changes nothing. Other items\n" +
			"go when they are answered.",
		Args:              console.Args(0, -1),
		ValidArgsFunction: a.CompleteTasks(true),
	}
	all := cmd.Flags().Bool("all", false, "all of the list")
	here := cmd.Flags().Bool("project", false, "with --all, only sessions of this project")
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		ctx := cmd.Context()
		if *all == (len(words) > 0) {
			return console.Usage("either tasks or --all is required", "usage: drover attention seen (REF… | --all)")
		}
		var tasks []console.Found
		if *all {
			list, of, err := a.Items(ctx, !*here)
			if err != nil {
				return err
			}
			for _, i := range list.Items {
				if i.Past() {
					tasks = append(tasks, console.Found{Session: of[i.Session], Record: task.Record{ID: i.Task}})
				}
			}
		} else {
			var err error
			if tasks, err = a.ResolveAll(ctx, words, true); err != nil {
				return err
			}
			for _, f := range tasks {
				if !f.Record.Status.Terminal() {
					return console.Conflict(fmt.Sprintf("mark task %s as seen: it has not ended", f.Record.ID),
						"see `drover attention` for what answers it")
				}
			}
		}
		for _, group := range console.BySession(tasks) {
			if err := a.Mark(ctx, group[0].Session, console.Refs(group)); err != nil {
				return err
			}
			for _, f := range group {
				if _, err := fmt.Fprintf(a.Stdout, "seen %s\n", console.Cell(string(f.Record.ID), 40)); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return cmd
}

// Mark marks tasks of one session as seen: at its host, or else in its files.
func (a *App) Mark(ctx context.Context, s console.Session, ids []string) error {
	for losses := 0; ; losses++ {
		err := a.markSeenAt(ctx, s, ids)
		if err == nil || !console.HostGone(err) && !control.Refused(err) || losses == console.HostLosses || !s.Gone(ctx) {
			return err
		}
		known, listed := a.Known(ctx, false, true)
		if listed != nil {
			return errors.Join(err, listed)
		}
		if s, listed = console.PickSession(known, string(s.Info().Session)); listed != nil {
			return errors.Join(err, listed)
		}
	}
}

func (a *App) markSeenAt(ctx context.Context, s console.Session, refs []string) error {
	if !s.Info().Live {
		ids := make([]task.ID, len(refs))
		for i, ref := range refs {
			ids[i] = task.ID(ref)
		}
		return a.MarkSeen(ctx, s.Info(), ids)
	}
	api, done, err := s.Open(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = api.MarkSeen(ctx, refs)
	return err
}

// attentionWatch shows the list as it changes.
type attentionWatch struct {
	a              *App
	all, json      bool
	notify         string
	blocking       bool
	loud           daypart.Part                     // in which anything is announced
	list           control.Attention                // as it was asked for last
	items          map[string]control.AttentionItem // of it, by session, ID, run and kind
	begun, onFrame bool
}

// run shows the list until the user leaves or ctx ends.
func (w *attentionWatch) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	wake := make(chan struct{}, 1)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	group.Go(func() {
		_ = w.a.FollowSessions(ctx, w.all, console.WatchTick,
			Changes(wake, console.WatchWait))
	}) // it ends with ctx
	w.items = map[string]control.AttentionItem{}
	if set, err := w.a.Settings(""); err == nil {
		w.loud, _ = daypart.Parse(set.Notify.Quiet) // errors are reported when sessions are opened
		w.loud = w.loud.Rest()
	}
	if !w.json && w.a.OpenTerminal != nil && w.a.IsTerminal(w.a.Stdout) {
		w.onFrame = true
		return w.a.Draw(ctx, console.Drawing{Look: w.look, Changed: wake, View: func(columns int) console.Frame {
			text := string(attentionText(w.list, w.a.Now()))
			if text == "" {
				text = "Nothing needs you."
			}
			return console.Frame{Lines: console.SplitLines(text, columns), Ticks: len(w.list.Items) > 0}
		}})
	}
	ctx, stop := console.WhileRead(ctx, w.a.Stdout)
	defer stop()
	for {
		if err := w.look(ctx); err != nil {
			return err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Changes returns a function that wakes whenever the list of a session changes, until the session ends.
func Changes(wake chan<- struct{}, wait time.Duration) func(context.Context, console.Session) {
	return func(ctx context.Context, s console.Session) {
		defer console.WakeUp(wake) // its files are read next
		api, done, err := s.Open(ctx)
		if err != nil {
			return // it has just ended, or is found again
		}
		defer done()
		req := control.AttentionRequest{}
		for {
			list, err := api.Attention(ctx, req)
			if err != nil {
				return
			}
			if list.Version != req.After {
				console.WakeUp(wake)
			}
			req = control.AttentionRequest{After: list.Version, Wait: wait}
		}
	}
}

// look asks for the list, announces what is new, and without a frame prints what came and
// what went.
func (w *attentionWatch) look(ctx context.Context) error {
	list, _, err := w.a.Items(ctx, w.all)
	if err != nil {
		return err
	}
	now := map[string]control.AttentionItem{}
	var out bytes.Buffer
	var fresh []control.AttentionItem
	for _, i := range list.Items {
		key := string(i.Session) + " " + i.ID + " " + string(i.Run) + " " + string(i.Kind)
		now[key] = i
		if _, known := w.items[key]; known {
			continue
		}
		fresh = append(fresh, i)
		if err := w.print(&out, "added", i); err != nil {
			return err
		}
	}
	for key, i := range w.items {
		if _, there := now[key]; !there {
			if err := w.print(&out, "removed", i); err != nil {
				return err
			}
		}
	}
	if w.begun {
		out.WriteString(w.announcement(fresh))
	}
	w.begun, w.items, w.list = true, now, list
	_, err = w.a.Stdout.Write(out.Bytes())
	return err
}

// attentionChange is a line of --watch --json.
type attentionChange struct {
	Change string                `json:"change"` // added or removed
	Item   control.AttentionItem `json:"item"`
}

func (w *attentionWatch) print(out *bytes.Buffer, change string, i control.AttentionItem) error {
	switch {
	case w.onFrame:
	case w.json:
		data, err := console.Marshal(attentionChange{change, i}, "")
		if err != nil {
			return err
		}
		out.Write(data)
	case change == "removed":
		fmt.Fprintf(out, "%s  %s  gone\n", console.Cell(i.ID, 40), console.Cell(string(i.Kind), 40))
	default:
		out.Write(attentionText(control.Attention{Items: []control.AttentionItem{i}}, w.a.Now()))
	}
	return nil
}

// announcement is the sequence by which a terminal announces new items; empty: nothing is
// announced, or stdout is not a terminal.
func (w *attentionWatch) announcement(fresh []control.AttentionItem) string {
	if w.blocking {
		fresh = slices.DeleteFunc(fresh, func(i control.AttentionItem) bool { return i.Past() })
	}
	now := w.a.Now()
	if len(fresh) == 0 || w.loud.Next(now).After(now) || w.notify == "none" || w.json || !w.a.IsTerminal(w.a.Stdout) {
		return ""
	}
	text := notificationText(fresh)
	switch w.notify {
	case "osc9":
		return "\x1b]9;" + text + "\x1b\\"
	case "osc99":
		return "\x1b]99;;" + text + "\x1b\\"
	case "osc777":
		return "\x1b]777;notify;Drover;" + text + "\x1b\\"
	}
	return "\a"
}

// notificationText is a line without a byte that could end or change a sequence.
func notificationText(fresh []control.AttentionItem) string {
	text := string(fresh[0].Kind) + ": " + fresh[0].Why
	if len(fresh) > 1 {
		text = fmt.Sprintf("%d items need you, first %s", len(fresh), text)
	}
	return strings.ReplaceAll(excerpt.Line(excerpt.Exact(text), 120), ";", ",")
}

// Sent is what became of a message to the user.
type Sent struct {
	Channel string // the setting that names it
	Err     error
}
