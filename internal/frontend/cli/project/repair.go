package project

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

// Repair is the result of the repair of a session.
type Repair struct {
	Session task.ID `json:"session_id"`
	Intact  bool    `json:"intact"`           // nothing was wrong, and nothing was changed
	Damage  string  `json:"damage,omitempty"` // of the log

	DescriptionRebuilt bool `json:"description_rebuilt,omitempty"` // session.json was rebuilt

	Tasks         int `json:"tasks"` // that were kept, with their events and messages
	Events        int `json:"events"`
	Notifications int `json:"notifications"`
	Messages      int `json:"messages"`
	Answers       int `json:"answers"`

	Missing           [][2]task.Seq `json:"missing"`            // numbers that could not be read, from and to
	MissingTasks      []task.ID     `json:"missing_tasks"`      // that they were of, as far as known
	NotificationsLost []task.ID     `json:"notifications_lost"` // whose ends count as told, since their notifications could not be read
	UnreadablePages   int           `json:"unreadable_pages"`   // that the disk did not give

	Rebuilt []Rebuilt `json:"rebuilt"`
	Aside   []string  `json:"set_aside"` // the damaged files
}

// Rebuilt is a task whose record was made of its files.
type Rebuilt struct {
	ID      task.ID   `json:"task_id"`
	Kind    task.Kind `json:"task_type"`
	From    []string  `json:"from"`
	Running bool      `json:"running,omitempty"` // a kept command that the next host takes up
}

func (a *app) sessionsRepair() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "repair [--json] [--force] SESSION",
		Short: "Rebuild the damaged log of an ended session",
		Long: "Rebuild the damaged log of a session that has no host from its readable records and, for tasks without a\n" +
			"readable record, from their files. The damaged files are kept beside the new log. Records that could not\n" +
			"be read are listed. An undamaged log is left unchanged.",
		Args: console.Args(1, 1),
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	force := cmd.Flags().Bool("force", false, "treat an unknown format as damage")
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		info, err := a.pick(cmd.Context(), words[0], true)
		if err != nil {
			return err
		}
		r, err := a.Repair(cmd.Context(), info, *force)
		if err != nil {
			return err
		}
		if *asJSON {
			return console.PrintJSON(a.Stdout, r.filled())
		}
		_, err = io.WriteString(a.Stdout, r.text())
		return err
	}
	return cmd
}

// filled returns the result with empty lists in place of nil, for JSON.
func (r Repair) filled() Repair {
	r.Missing, r.MissingTasks, r.NotificationsLost = append([][2]task.Seq{}, r.Missing...),
		append([]task.ID{}, r.MissingTasks...),
		append([]task.ID{}, r.NotificationsLost...)
	r.Rebuilt, r.Aside = append([]Rebuilt{}, r.Rebuilt...), append([]string{}, r.Aside...)
	return r
}

func (r Repair) text() string {
	id := console.Cell(string(r.Session), 40)
	if r.Intact {
		return fmt.Sprintf("session %s: its log is undamaged; nothing was changed\n", id)
	}
	if r.DescriptionRebuilt && r.Damage == "" {
		return fmt.Sprintf("session %s: rebuilt its session.json; its log is undamaged\n", id)
	}
	var b strings.Builder
	line := func(format string, v ...any) { fmt.Fprintf(&b, format+"\n", v...) }
	line("session %s: rebuilt its log (%s)", id, console.Cell(r.Damage, 300))
	line("kept: %d tasks, %d events, %d notifications, %d messages, %d answers", r.Tasks, r.Events, r.Notifications,
		r.Messages,
		r.Answers)
	for i, t := range r.Rebuilt {
		if i == console.MostNamed {
			line("and %d more", len(r.Rebuilt)-i)
			break
		}
		what := "killed, cause lost"
		if t.Running {
			what = "a kept command, which the next host continues"
		}
		line("rebuilt from its files: %s, %s (%s)", console.Cell(string(t.ID), 40), what,
			console.Cell(strings.Join(t.From, ", "), 200))
	}
	if len(r.Missing) > 0 {
		var spans []string
		for _, s := range r.Missing {
			span := fmt.Sprint(s[0])
			if s[1] > s[0] {
				span = fmt.Sprintf("%d to %d", s[0], s[1])
			}
			spans = append(spans, span)
		}
		line("unreadable records: %s", firstOf(spans))
	}
	if len(r.MissingTasks) > 0 {
		line("tasks with unreadable records: %s", firstOf(r.MissingTasks))
	}
	if len(r.NotificationsLost) > 0 {
		line("their ends count as delivered, since no notification could be read: %s", firstOf(r.NotificationsLost))
	}
	if r.UnreadablePages > 0 {
		line("%d pages could not be read from the disk", r.UnreadablePages)
	}
	for _, path := range r.Aside {
		line("set aside: %s", console.Cell(path, 1000))
	}
	if r.DescriptionRebuilt {
		line("rebuilt its session.json, too")
	}
	return b.String()
}

// remove removes an ended session.
func (a *app) remove(ctx context.Context, of control.Info, force bool) error {
	if !force {
		return a.Remove(ctx, of)
	}
	unseen, err := a.Discard(ctx, of)
	if err == nil && unseen != "" {
		a.Note("session %s: %s", of.Session, unseen)
	}
	return err
}

// firstOf is a list of which people are shown the beginning.
func firstOf[T ~string](all []T) string {
	var words []string
	for _, w := range all[:min(len(all), console.MostNamed)] {
		words = append(words, console.Cell(string(w), 60))
	}
	if n := len(all) - len(words); n > 0 {
		words = append(words, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(words, ", ")
}
