package project

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/todo"
)

// todoFlags are what every form of `drover todo` takes.
type todoFlags struct {
	list string
	json bool
}

func (a *app) todoCommand() *cobra.Command {
	var f todoFlags
	show := func(cmd *cobra.Command, _ []string) error { return a.todoShow(cmd, f) }
	cmd := &cobra.Command{
		Use: "todo",
		Long: "Show and change a to-do list. Each session and each folder has its own list. Without --list and\n" +
			"DROVER_TODO_LIST the command uses the list of this folder and its sessions that was changed last.",
		RunE: show,
	}
	p := cmd.PersistentFlags()
	p.StringVar(&f.list, "list", "", "name of the list; a session's list is named by its ID")
	p.BoolVar(&f.json, "json", false, "print JSON")
	cmd.AddCommand(
		&cobra.Command{Use: "list", Short: "Show all to-dos", RunE: show},
		a.todoAdd(&f),
		&cobra.Command{
			Use: "set ID FIELD=VALUE…", Short: "Change a to-do",
			Long: "Change a to-do. The fields are subject, description, active_form, owner, status (pending, in_progress or\n" +
				"completed), blocked_by (numbers, such as 1,2; empty for none), and metadata.KEY (JSON or text;\n" +
				"null removes it).",
			Args: console.Args(2, -1),
			RunE: func(cmd *cobra.Command, words []string) error { return a.todoSet(cmd, f, words) },
		},
		&cobra.Command{
			Use: "done ID…", Short: "Complete to-dos", Args: console.Args(1, -1),
			RunE: func(cmd *cobra.Command, words []string) error { return a.todoDone(cmd, f, words) },
		},
		&cobra.Command{
			Use: "rm ID…", Short: "Delete to-dos", Args: console.Args(1, -1),
			RunE: func(cmd *cobra.Command, words []string) error { return a.todoRemove(cmd, f, words) },
		},
		&cobra.Command{
			Use: "graph", Short: "Show the to-dos as a graph of what blocks what", RunE: func(cmd *cobra.Command,
				_ []string) error {
				return a.todoGraph(cmd, f)
			},
		},
	)
	return cmd
}

// openTodos finds the list that is meant.
func (a *app) openTodos(name string) (*todo.Store, string, error) {
	if name != "" {
		if err := todo.CheckName(name); err != nil {
			return nil, "", console.Usage("--list: "+err.Error(), "see `drover sessions`")
		}
	}
	set, err := a.Settings("")
	if err != nil {
		return nil, "", err
	}
	if name == "" {
		last, err := a.lastTodos()
		if err != nil {
			return nil, "", err
		}
		if name, err = todo.ListName(home.Lookup(a.Env), last); err != nil {
			return nil, "", err
		}
	}
	return todo.At(a.Root.Todos(name), set.Durability == "power"), name, nil
}

// lastTodos is the list of this folder and its sessions that was changed last.
func (a *app) lastTodos() (string, error) {
	project := a.Root.Project(a.Cwd)
	name := filepath.Base(project.Dir())
	sessions, err := project.Sessions()
	if err != nil {
		return "", err
	}
	changed := a.todosChanged(name)
	for _, s := range sessions {
		if at := a.todosChanged(string(s.ID())); at.After(changed) {
			name, changed = string(s.ID()), at
		}
	}
	return name, nil
}

// todosChanged is when a list was changed; the zero time without a list.
func (a *app) todosChanged(name string) time.Time {
	info, err := a.Root.Below().Lstat(a.Root.Todos(name))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// readTodos reads a list, and notes unreadable to-dos.
func (a *app) readTodos(ctx context.Context, name string) (todo.List, string, error) {
	s, name, err := a.openTodos(name)
	if err != nil {
		return todo.List{}, "", err
	}
	l, err := s.List(ctx)
	for _, p := range l.Problems {
		fmt.Fprintf(a.Stderr, "drover: note: %s\n", excerpt.Line(p.String(), 1000))
	}
	return l, name, err
}

// shownTodo is a to-do as programs see it.
type shownTodo struct {
	todo.Item
	Blocks []todo.ID `json:"blocks"`
}

func (a *app) todoShow(cmd *cobra.Command, f todoFlags) error {
	l, name, err := a.readTodos(cmd.Context(), f.list)
	if err != nil {
		return err
	}
	if f.json {
		out := make([]shownTodo, len(l.Items))
		blocks := map[todo.ID][]todo.ID{}
		for _, e := range l.Graph().Edges {
			blocks[e.From] = append(blocks[e.From], e.To)
		}
		for i, it := range l.Items {
			out[i] = shownTodo{it, append([]todo.ID{}, blocks[it.ID]...)}
		}
		return console.PrintJSON(cmd.OutOrStdout(), out)
	}
	if len(l.Items) == 0 {
		return a.Printf("No to-dos in list %s. Add one with `drover todo add SUBJECT`.\n", name)
	}
	rows := [][]string{{"ID", "STATUS", "OWNER", "WAITS FOR", "SUBJECT"}}
	for _, it := range l.Items {
		owner, waits := cmp.Or(excerpt.Line(it.Owner, 30), "-"), cmp.Or(todoNumbers(l.Waits(it)), "-")
		rows = append(rows, []string{it.ID.String(), string(it.Status), owner, waits, excerpt.Line(it.Title(), 80)})
	}
	_, err = a.Stdout.Write(fmt.Appendf(a.LayOut(rows, console.Headed), "List %s\n", name))
	return err
}

// todoNumbers names the first few.
func todoNumbers(ids []todo.ID) string {
	const most = 5
	var names []string
	for _, id := range ids[:min(len(ids), most)] {
		names = append(names, id.String())
	}
	if n := len(ids) - most; n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	return strings.Join(names, " ")
}

func (a *app) todoAdd(f *todoFlags) *cobra.Command {
	var d todo.Draft
	var after string
	cmd := &cobra.Command{
		Use: "add SUBJECT", Short: "Add a to-do", Args: console.Args(1, -1),
		RunE: func(cmd *cobra.Command, words []string) error {
			d.Subject = strings.Join(words, " ")
			var err error
			if d.BlockedBy, err = todoIDs(after); err != nil {
				return err
			}
			s, name, err := a.openTodos(f.list)
			if err != nil {
				return err
			}
			it, err := s.Create(cmd.Context(), d)
			if err != nil {
				return todoError(err)
			}
			return todoTell(cmd, *f, it, "%s added to list %s", it.ID, name)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&d.Description, "description", "d", "", "what must be done")
	flags.StringVar(&d.ActiveForm, "active-form", "", "the subject in its -ing form, such as 'Writing tests'")
	flags.StringVar(&d.Owner, "owner", "", "who is to do it")
	flags.StringVar(&after, "blocked-by", "", "what it waits for, as in 1,2")
	return cmd
}

func (a *app) todoSet(cmd *cobra.Command, f todoFlags, words []string) error {
	ids, err := todoIDs(words[0])
	if err != nil || len(ids) != 1 {
		return console.Usage(fmt.Sprintf("%.40q: not the number of a to-do", words[0]), "see `drover todo`")
	}
	p, err := todoPatch(words[1:])
	if err != nil {
		return err
	}
	s, name, err := a.openTodos(f.list)
	if err != nil {
		return err
	}
	change, err := s.Update(cmd.Context(), ids[0], p)
	if err != nil {
		return todoError(err)
	}
	did := "unchanged"
	if len(change.Fields) > 0 {
		did = "changed: " + strings.Join(change.Fields, ", ")
	}
	return todoTell(cmd, f, change.After, "%s of list %s %s", ids[0], name, did)
}

// todoPatch reads words such as status=completed.
func todoPatch(words []string) (todo.Patch, error) {
	p := todo.Patch{Metadata: map[string]json.RawMessage{}}
	texts := map[string]**string{"subject": &p.Subject, "description": &p.Description, "active_form": &p.ActiveForm,
		"owner": &p.Owner}
	for _, word := range words {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			return p, console.Usage(fmt.Sprintf("%.40q: not a FIELD=VALUE", word), "write it as FIELD=VALUE")
		}
		key, meta := strings.CutPrefix(name, "metadata.")
		switch at := texts[name]; {
		case at != nil:
			*at = &value
		case meta && key != "":
			p.Metadata[key] = todoValue(value)
		case name == "status" && value == "deleted":
			return p, console.Usage("status=deleted: unknown status", "use `drover todo rm`")
		case name == "status":
			p.Status = (*todo.Status)(&value)
		case name == "blocked_by":
			ids, err := todoIDs(value)
			if err != nil {
				return p, err
			}
			p.BlockedBy = &ids
		default:
			return p, console.Usage(fmt.Sprintf("%.40q: not a field of a to-do", name), "see `drover todo set --help`")
		}
	}
	return p, nil
}

// todoValue is JSON, or a text that is not.
func todoValue(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	quoted, _ := json.Marshal(text) // of a string, which cannot fail
	return quoted
}

// todoIDs reads numbers such as 1,2.
func todoIDs(text string) ([]todo.ID, error) {
	out := []todo.ID{}
	for _, one := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		id, err := todo.ParseID(one)
		if err != nil {
			return nil, console.Usage(err.Error(), "see `drover todo`")
		}
		out = append(out, id)
	}
	return out, nil
}

// todoDone completes to-dos, up to the first that cannot be.
func (a *app) todoDone(cmd *cobra.Command, f todoFlags, words []string) error {
	ids, err := todoIDs(strings.Join(words, ","))
	if err != nil {
		return err
	}
	s, name, err := a.openTodos(f.list)
	if err != nil {
		return err
	}
	status := todo.Completed
	done := []todo.Item{}
	var gone []todo.ID
	for _, id := range ids {
		var change todo.Change
		if change, err = s.Update(cmd.Context(), id, todo.Patch{Status: &status}); err != nil {
			break
		}
		done, gone = append(done, change.After), append(gone, id)
	}
	if len(done) == 0 {
		return todoError(err)
	}
	told := todoTell(cmd, f, done, "%s completed in list %s", todoNumbers(gone), name)
	return errors.Join(todoError(err), told)
}

func (a *app) todoRemove(cmd *cobra.Command, f todoFlags, words []string) error {
	ids, err := todoIDs(strings.Join(words, ","))
	if err != nil {
		return err
	}
	s, name, err := a.openTodos(f.list)
	if err != nil {
		return err
	}
	gone := struct {
		Deleted []todo.ID `json:"deleted"`
	}{[]todo.ID{}}
	for _, id := range ids {
		if _, err = s.Delete(cmd.Context(), id); err != nil {
			break
		}
		gone.Deleted = append(gone.Deleted, id)
	}
	if len(gone.Deleted) == 0 {
		return todoError(err)
	}
	told := todoTell(cmd, f, gone, "%s deleted from list %s", todoNumbers(gone.Deleted), name)
	return errors.Join(todoError(err), told)
}

func (a *app) todoGraph(cmd *cobra.Command, f todoFlags) error {
	l, name, err := a.readTodos(cmd.Context(), f.list)
	if err != nil {
		return err
	}
	if f.json {
		return console.PrintJSON(cmd.OutOrStdout(), l.Graph())
	}
	text := l.Tree(func(it todo.Item, again bool) string {
		text := fmt.Sprintf("%s [%s] %s", it.ID, it.Status, excerpt.Line(it.Title(), 80))
		if waits := l.Waits(it); len(waits) > 1 {
			text += " (waits for " + todoNumbers(waits) + ")"
		}
		if again {
			text += " (see above)"
		}
		return text
	})
	_, err = io.WriteString(cmd.OutOrStdout(), text+"List "+name+"\n")
	return err
}

// todoTell prints a change, as a line or as JSON.
func todoTell(cmd *cobra.Command, f todoFlags, v any, format string, words ...any) error {
	if f.json {
		return console.PrintJSON(cmd.OutOrStdout(), v)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format+"\n", words...)
	return err
}

// todoError gives a missing to-do the exit code for that.
func todoError(err error) error {
	if errors.Is(err, todo.ErrNotFound) {
		return console.Missing(err.Error(), "see `drover todo`")
	}
	return err
}
