package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// tablePage is how many tasks a table shows unless more are asked for.
const tablePage = 200

func (a *app) ps() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ps [-a] [--tree] [--all-sessions] [--all-machines] [--watch] [--json] [-q]",
		Short: "List tasks: status, age, time, tokens",
		Long: "List the live tasks of this project's sessions, newest first. -a also lists ended tasks, including those\n" +
			"of ended sessions. A table has at most 200 tasks; --limit changes that.\n" +
			"With --all-machines it lists the tasks of all sessions of this machine, and what the workers of the hub do for\n" +
			"sessions elsewhere, with the machine of each; \"gone\" is a worker that the hub does not know any more.\n" +
			"With --watch the table is drawn again in place when something has changed. Where stdout is no terminal, or with\n" +
			"--json, each live task is a line at first, and then each change.",
		Args:              takes(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	ended := f.BoolP("all", "a", false, "list ended tasks too")
	tree := f.Bool("tree", false, "list children below the task that started them")
	asJSON := f.Bool("json", false, "a JSON array")
	quiet := f.BoolP("quiet", "q", false, "print only IDs")
	limit := f.Int("limit", -1, "maximum number of tasks; 0 for all (default 200 in a table, all otherwise)")
	watch := f.Bool("watch", false, "keep running and show changes, until q or Ctrl-C")
	machines := f.Bool("all-machines", false, "list what the workers of the hub do for other machines too")
	all := everywhere(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case *limit < -1:
			return usage(fmt.Sprintf("--limit %d: out of range", *limit), "from 0 on")
		case *limit >= 0:
		case *asJSON || *quiet:
			*limit = 0
		default:
			*limit = tablePage
		}
		if *machines {
			if *watch || *tree {
				return usage("--all-machines and --watch or --tree are mutually exclusive", "leave one of them out")
			}
			return a.psMachines(cmd.Context(), *ended, *limit, *asJSON, *quiet)
		}
		l := listing{ended: *ended, tree: *tree, all: *all, limit: *limit}
		if *watch {
			if *quiet {
				return usage("--watch and --quiet are mutually exclusive", "use --watch --json")
			}
			return a.watchTasks(cmd.Context(), l, *asJSON)
		}
		table, err := a.rowsOf(cmd.Context(), l)
		if err != nil {
			return err
		}
		records := table.records
		switch {
		case *asJSON:
			if asks := func(r task.Record) bool { return len(r.Questions) > 0 }; !slices.ContainsFunc(records, asks) {
				return printArray(a.Stdout, records)
			}
			shown := make([]listed, len(records))
			for i, r := range records {
				shown[i] = withDisplay(r)
			}
			return printArray(a.Stdout, shown)
		case *quiet:
			return a.printIDs(records)
		}
		if _, err := a.Stdout.Write(a.tableText(table, a.Columns())); err != nil {
			return err
		}
		a.noteMore(table.more, len(records))
		for _, r := range records {
			for _, q := range r.Questions {
				a.note("%s", needsAnswer(q))
			}
		}
		return nil
	}
	return cmd
}

func (a *app) printIDs(records []task.Record) error {
	var ids strings.Builder
	for _, r := range records {
		fmt.Fprintln(&ids, cell(string(r.ID), 40))
	}
	_, err := a.Stdout.Write([]byte(ids.String()))
	return err
}

func (a *app) noteMore(more bool, shown int) {
	if more {
		a.note("the newest %d tasks are shown (--limit 0 shows all)", shown)
	}
}

// nameChars is how much of a name a table shows.
const nameChars = 30

// modelColumn is where the model stands if anything on the page has one.
const modelColumn = 6

func (a *app) taskRows(records []task.Record, depth []int, session bool) [][]string {
	now := a.Now()
	rows := [][]string{{"ID", "NAME", "KIND", "STATUS", "AGE", "TIME", "TOKENS", "EXIT", "COMMAND"}}
	for i, r := range records {
		rows = append(rows, []string{
			strings.Repeat("  ", depth[i]) + cell(string(r.ID), 40), cell(r.Name, nameChars), cell(string(r.Kind), 30),
			status(now, r),
			age(now, r.CreateTime), span(r.Duration(now)), tokens(r), exit(r), doing(r),
		})
	}
	if slices.ContainsFunc(records, func(r task.Record) bool { return r.Why() != "" }) {
		at := len(rows[0]) - 1
		rows[0] = slices.Insert(rows[0], at, "REASON")
		for i, r := range records {
			rows[i+1] = slices.Insert(rows[i+1], at, cell(r.Why(), 60))
		}
	}
	if slices.ContainsFunc(records, func(r task.Record) bool { return r.Model != "" }) {
		rows[0] = slices.Insert(rows[0], modelColumn, "MODEL")
		for i, r := range records {
			rows[i+1] = slices.Insert(rows[i+1], modelColumn, cell(r.Model, 26))
		}
	}
	if session {
		rows[0] = slices.Insert(rows[0], 1, "SESSION")
		for i, r := range records {
			rows[i+1] = slices.Insert(rows[i+1], 1, cell(string(r.Session), 40))
		}
	}
	return rows
}

// list merges the tasks of sessions, newest first. A limit of 0 is none; more
// tells that the limit hid some. A session that does not answer is noted on
// stderr and hinders no other.
func (a *app) list(ctx context.Context, ended, all bool, limit int) (records []task.Record, more bool, err error) {
	sessions, err := a.Known(ctx, !ended, all)
	if err != nil {
		return nil, false, fmt.Errorf("list sessions: %w", err)
	}
	sessions = slices.DeleteFunc(slices.Clone(sessions), func(s Session) bool {
		i := s.Info()
		return !i.Live && i.Tasks.Total == 0 && i.EndTime != nil
	})
	records = []task.Record{}
	for block := range slices.Chunk(sessions, asked) {
		if limit > 0 && len(records) >= limit {
			// What ended before the oldest task on the page cannot get onto it.
			oldest := records[limit-1].CreateTime
			n := len(block)
			block = slices.DeleteFunc(block, func(s Session) bool { return before(s.Info().EndTime, oldest) })
			more = more || len(block) < n
		}
		ask := func(ctx context.Context, api control.API) (control.Page, error) {
			return api.List(ctx, control.ListRequest{All: ended, Limit: limit})
		}
		pages, errs := each(ctx, block, ask)
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		for i, page := range pages {
			if hostGone(errs[i]) { // it died while it was asked, and has left something to ask
				page, errs[i] = a.left(ctx, block[i], all, ask)
			}
			if errs[i] != nil {
				a.note("%v", errs[i])
			}
			if block[i].Info().Stopped {
				a.note("the host of session %s is suspended, as by Ctrl-Z: its log is shown (`fg` in its terminal continues it)",
					block[i].Info().Session)
			}
			if page.Problem != "" {
				a.note("session %s: %s", block[i].Info().Session, page.Problem)
			}
			more = more || page.Next != 0
			records = append(records, page.Tasks...)
		}
		slices.SortStableFunc(records, func(x, y task.Record) int { return y.CreateTime.Compare(x.CreateTime) })
		if limit > 0 && len(records) > limit {
			records, more = records[:limit], true
		}
	}
	return records, more, nil
}

// left asks for a listing of a session anew.
func (a *app) left(ctx context.Context, s Session, all bool,
	ask func(context.Context, control.API) (control.Page, error)) (control.Page, error) {
	known, err := a.Known(ctx, false, all)
	if err != nil {
		return control.Page{}, fmt.Errorf("list sessions: %w", err)
	}
	same := slices.DeleteFunc(slices.Clone(known), func(k Session) bool { return k.Info().Session != s.Info().Session })
	pages, errs := each(ctx, same, ask)
	if len(same) == 0 {
		return control.Page{}, nil // somebody has removed it
	}
	return pages[0], errs[0]
}

func before(end *time.Time, t time.Time) bool { return end != nil && end.Before(t) }

// family puts children behind their parents and tells how deep each is. A task
// whose parent is not listed stands at the top.
func family(records []task.Record) ([]task.Record, []int) {
	listed := map[task.ID]bool{}
	children := map[task.ID][]task.Record{}
	for _, r := range records {
		listed[r.ID] = true
	}
	var tops []task.Record
	for _, r := range records {
		if r.Parent != "" && r.Parent != r.ID && listed[r.Parent] {
			children[r.Parent] = append(children[r.Parent], r)
		} else {
			tops = append(tops, r)
		}
	}
	out := make([]task.Record, 0, len(records))
	depth := make([]int, 0, len(records))
	var add func(r task.Record, d int)
	add = func(r task.Record, d int) {
		if !listed[r.ID] {
			return
		}
		listed[r.ID] = false
		out, depth = append(out, r), append(depth, d)
		for _, c := range children[r.ID] {
			add(c, d+1)
		}
	}
	for _, r := range tops {
		add(r, 0)
	}
	for _, r := range records { // of a damaged record that is its own ancestor
		add(r, 0)
	}
	return out, depth
}
