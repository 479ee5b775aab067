package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// Limits of asking many sessions at once: one that hangs must not hide the rest.
const (
	asked    = 8
	patience = 10 * time.Second
)

// found is a task and the session that knows it.
type found struct {
	session Session
	record  task.Record
}

func (f found) live() bool { return f.session.Info().Live }

// open opens the session of the task.
func (f found) open(ctx context.Context) (control.API, func(), error) {
	api, done, err := f.session.Open(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("open session %s: %w", f.session.Info().Session, err)
	}
	return api, done, nil
}

// reach is open for who waits for a host that stands still.
func (f found) reach(ctx context.Context) (control.API, func(), error) {
	api, done, err := f.session.Reach(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("open session %s: %w", f.session.Info().Session, err)
	}
	return api, done, nil
}

// taken asks a session, which ask finds anew each time, until one has taken the
// question: a host that is just going does not, and what it leaves can be asked.
func taken(ctx context.Context, ask func() (Session, error)) error {
	for losses := 0; ; losses++ {
		s, err := ask()
		if s == nil || !control.Refused(err) || losses == hostLosses || !s.Gone(ctx) {
			return err
		}
	}
}

// each asks sessions side by side and returns the answers in their order. A
// session that does not answer in time gives an error, and only for itself.
func each[T any](ctx context.Context, sessions []Session, ask func(context.Context, control.API) (T, error)) ([]T,
	[]error) {
	answers, errs := make([]T, len(sessions)), make([]error, len(sessions))
	var group sync.WaitGroup
	slots := make(chan struct{}, asked)
	for i, s := range sessions {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer in %s", patience))
			defer cancel()
			api, done, err := s.Open(ctx)
			if err == nil {
				defer done()
				answers[i], err = ask(ctx, api)
			}
			if err != nil {
				errs[i] = fmt.Errorf("ask session %s: %w", s.Info().Session, err)
			}
		})
	}
	group.Wait()
	return answers, errs
}

// place is where a word is looked for.
type place struct {
	live, all bool
	ids       bool // names do not count
}

// LeastID is how many characters of an ID find a task or a session of another
// project: a slip of the finger must not.
const LeastID = 4

// places is where a word is looked for: in the project, then everywhere, but there,
// without all, as an ID only.
func places(word string, all bool) [][]place {
	out := [][]place{{{live: true}, {}}}
	if all || len(word) >= LeastID && strings.Trim(word, "0123456789abcdefghijklmnopqrstuvwxyz-") == "" {
		out = append(out, []place{{live: true, all: true, ids: !all}, {all: true, ids: !all}})
	}
	return out
}

// resolve finds the one task that ref means: among the sessions of the project, live
// ones first, else everywhere, by its ID or with all by its name too. A name means the
// one task that lives and goes by it, else the newest that has ended.
func (a *app) resolve(ctx context.Context, ref string, all bool) (found, error) {
	return a.search(ctx, ref, slices.Concat(places(ref, all)...))
}

func (a *app) search(ctx context.Context, ref string, places []place) (found, error) {
	seen := map[task.ID]bool{}
	var problem error
	var ended *found // goes by the name
	for i, p := range places {
		if ended != nil && p.all != places[i-1].all {
			return *ended, nil
		}
		sessions, err := a.Known(ctx, p.live, p.all)
		if err != nil {
			return found{}, fmt.Errorf("list sessions: %w", err)
		}
		sessions = slices.DeleteFunc(slices.Clone(sessions), func(s Session) bool { return seen[s.Info().Session] })
		if ended != nil { // what ended before it began has nothing newer
			sessions = slices.DeleteFunc(sessions, func(s Session) bool {
				return before(s.Info().EndTime,
					ended.record.CreateTime)
			})
		}
		f, err := pick(ctx, sessions, ref, p.ids)
		switch {
		case err == nil && ended != nil && f.record.Name != ref:
		case err == nil && f.record.Status.Terminal() && f.record.Name == ref:
			if ended == nil || f.record.CreateTime.After(ended.record.CreateTime) {
				ended = &f
			}
		case err == nil:
			return f, nil
		}
		for _, s := range sessions {
			// A host that went away while it was asked has left something to ask.
			seen[s.Info().Session] = !hostGone(err)
		}
		var e *control.Error
		switch {
		case err == nil:
		case !errors.As(err, &e) || e.Code != control.NotFound && e.Code != control.Ambiguous:
			problem = err // a later place may know the task all the same
		case e.Code == control.Ambiguous && ended == nil:
			return found{}, err
		}
	}
	if ended != nil {
		return *ended, nil
	}
	if problem != nil {
		return found{}, problem
	}
	if matches := a.begins(ctx, ref); len(matches) > 0 {
		return found{}, severalMatches(ref, matches)
	}
	return found{}, &control.Error{Code: control.NotFound, Message: fmt.Sprintf("no task %q: unknown ID or name", ref),
		Fix: "see `drover ps -a`"}
}

// begins are the tasks of this project whose IDs begin with a single character, which
// sessions do not take for an ID.
func (a *app) begins(ctx context.Context, ref string) []string {
	if len(ref) != 1 {
		return nil
	}
	records, _, _ := a.list(ctx, true, false, tablePage) // what cannot be listed is no candidate
	var out []string
	for _, r := range records {
		if strings.HasPrefix(string(r.ID), ref) {
			out = append(out, string(r.ID))
		}
	}
	return out
}

// pick finds the one task in the sessions that ref means; with ids, not by its name.
func pick(ctx context.Context, sessions []Session, ref string, ids bool) (found, error) {
	other := func(label string) bool { return ids && !strings.HasPrefix(label, ref) }
	var hits, named []found
	var matches []string
	var problem error
	for some := range slices.Chunk(sessions, asked) {
		records, errs := each(ctx, some, func(ctx context.Context, api control.API) (task.Record, error) {
			return api.Get(ctx, ref)
		})
		for i, err := range errs {
			var e *control.Error
			switch {
			case err == nil && string(records[i].ID) == ref: // a whole ID is unique everywhere
				return found{some[i], records[i]}, nil
			case err == nil && other(string(records[i].ID)):
			case err == nil && records[i].Name == ref:
				named = append(named, found{some[i], records[i]})
			case err == nil:
				hits = append(hits, found{some[i], records[i]})
				matches = append(matches, label(records[i], some[i]))
			case errors.As(err, &e) && e.Code == control.Ambiguous:
				matches = append(matches, slices.DeleteFunc(e.Matches, other)...)
			case !errors.As(err, &e) || e.Code != control.NotFound:
				problem = err
			}
		}
	}
	if hit, live := meant(named); live != nil {
		matches = live
	} else if hit != nil {
		return *hit, nil
	}
	switch {
	case len(matches) > 1:
		return found{}, severalMatches(ref, matches)
	case len(hits) == 1:
		return hits[0], nil
	case problem != nil:
		return found{}, problem
	}
	return found{}, control.NotFoundError(ref)
}

// meant is which of the tasks of several sessions their name means: the one that lives,
// else the newest. Of several that live it returns what tells them apart.
func meant(named []found) (hit *found, live []string) {
	var lives bool
	for i, f := range named {
		switch alive := !f.record.Status.Terminal(); {
		case alive:
			hit, lives, live = &named[i], true, append(live, label(f.record, f.session))
		case !lives && (hit == nil || f.record.CreateTime.After(hit.record.CreateTime)):
			hit = &named[i]
		}
	}
	if len(live) < 2 {
		return hit, nil
	}
	return nil, live
}

// sessionOf finds the one session that a word means, by its ID or the beginning of it.
func sessionOf(known []Session, word string) (Session, error) {
	var hits []Session
	for _, s := range known {
		switch id := string(s.Info().Session); {
		case id == word:
			return s, nil
		case len(word) > 1 && strings.HasPrefix(id, word):
			hits = append(hits, s)
		}
	}
	switch len(hits) {
	case 0:
		return nil, &control.Error{Code: control.NotFound, Message: fmt.Sprintf("no session %q", word),
			Fix: "see `drover sessions --all-sessions`"}
	case 1:
		return hits[0], nil
	}
	e := &control.Error{Code: control.Ambiguous, Fix: "give more of the ID"}
	for _, s := range hits {
		e.Matches = append(e.Matches, string(s.Info().Session))
	}
	e.Message = fmt.Sprintf("%q could be any of %s", word, strings.Join(e.Matches, ", "))
	return nil, e
}

func notFound(err error) bool {
	var e *control.Error
	return errors.As(err, &e) && e.Code == control.NotFound
}

// label names a match so that it can be told from the others.
func label(r task.Record, s Session) string {
	if r.Name == "" {
		return string(r.ID)
	}
	return fmt.Sprintf("%s (%s, session %s)", r.ID, r.Name, s.Info().Session)
}

// resolveAll finds the tasks of several refs, in their order.
func (a *app) resolveAll(ctx context.Context, refs []string, all bool) ([]found, error) {
	out := make([]found, 0, len(refs))
	for _, ref := range refs {
		f, err := a.resolve(ctx, ref, all)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// bySession groups tasks by their session, in the order they first come.
func bySession(tasks []found) [][]found {
	var groups [][]found
	for _, f := range tasks {
		i := slices.IndexFunc(groups, func(g []found) bool {
			return g[0].session.Info().Session == f.session.Info().Session
		})
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], f)
	}
	return groups
}

func refs(tasks []found) []string {
	out := make([]string, len(tasks))
	for i, f := range tasks {
		out[i] = string(f.record.ID)
	}
	return out
}

// everywhere adds the flag --all-sessions.
func everywhere(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("all-sessions", false, "look in the sessions of all projects too")
}

// completeTasks offers the IDs and names of tasks; with ended, those of live
// sessions that have ended too.
func (a *app) completeTasks(ended bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), time.Second) // a person waits at the key
		defer cancel()
		sessions, err := a.Known(ctx, true, false)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		pages, _ := each(ctx, sessions, func(ctx context.Context, api control.API) (control.Page, error) {
			return api.List(ctx, control.ListRequest{All: ended, Limit: tablePage})
		})
		var out []cobra.Completion
		for _, p := range pages {
			for _, r := range p.Tasks {
				for _, word := range []string{string(r.ID), r.Name} {
					if word != "" && strings.HasPrefix(word, typed) && excerpt.Line(word, 100) == word {
						out = append(out, cobra.CompletionWithDesc(word, cell(work(r), 40)))
					}
				}
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// severalMatches says that a word is ambiguous, and what it could mean.
func severalMatches(ref string, matches []string) error {
	names := matches
	if more := len(matches) - mostNamed; more > 0 {
		names = append(slices.Clone(matches[:mostNamed]), fmt.Sprintf("%d more", more))
	}
	return &control.Error{Code: control.Ambiguous, Matches: matches,
		Message: fmt.Sprintf("%q is ambiguous: it could be any of %s", ref, strings.Join(names, ", ")),
		Fix:     "give more of the ID"}
}
