package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// Newest are the conversations that are live, and the last of all.
func (a *Console) Newest(ctx context.Context, all bool) (live []Session, last Session, err error) {
	known, err := a.Known(ctx, false, all)
	if err != nil {
		return nil, nil, fmt.Errorf("list sessions: %w", err)
	}
	for _, s := range known {
		switch i := s.Info(); {
		case i.Role != Conversing:
			continue
		case i.Live:
			live = append(live, s)
		}
		last = cmp.Or(last, s)
	}
	if len(live) > 0 {
		last = live[0]
	}
	if last == nil {
		return nil, nil, &control.Error{Code: control.NotFound, Message: "this folder has no conversation",
			Fix: "begin one with `drover attach --new`"}
	}
	return live, last, nil
}

// SeveralLive lists the sessions among which a command cannot choose. It takes one as command says.
func (a *Console) SeveralLive(ctx context.Context, sessions []Session, command string) error {
	rows := [][]string{{"SESSION", "TITLE", "AGE", "FOLDER", "RUNNING"}}
	e := Usage(fmt.Sprintf("%d sessions are live", len(sessions)), "choose one: `"+command+"`")
	for _, s := range sessions {
		i := s.Info()
		folder := a.Brief(i.Project)
		if folder == "." {
			folder = filepath.Base(i.Project)
		}
		rows = append(rows, []string{Cell(string(i.Session), 40), cmp.Or(Cell(i.Title, 40), "-"),
			Age(a.Now(), i.StartTime) + " ago",
			Cell(folder, 40), cmp.Or(Cell(a.Running(ctx, s), 30), "-")})
	}
	if err := a.Table(rows, Headed); err != nil {
		return err
	}
	return e
}

// Running is what runs in a live session, in a few words.
func (a *Console) Running(ctx context.Context, s Session) string {
	api, release, err := s.Open(ctx)
	if err != nil {
		return ""
	}
	defer release()
	page, err := api.List(ctx, control.ListRequest{Limit: TablePage})
	if err != nil {
		return ""
	}
	return task.PillLabel(page.Tasks)
}

// Conversing is the role of a session with a main agent.
const Conversing = "prompt"

// Conversations are the sessions of this folder that a prompt can go on with, newest
// first.
func (a *Console) Conversations(ctx context.Context) ([]control.Info, error) {
	infos, err := a.Infos(ctx, false)
	return slices.DeleteFunc(infos, func(i control.Info) bool { return i.Role != Conversing }), err
}

// MostNamed is how many of a kind are named to people.
const MostNamed = 20

// FirstOf is a list of which people are shown the beginning.
func FirstOf[T ~string](all []T) string {
	var words []string
	for _, w := range all[:min(len(all), MostNamed)] {
		words = append(words, Cell(string(w), 60))
	}
	if n := len(all) - len(words); n > 0 {
		words = append(words, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(words, ", ")
}

// Limits of asking many sessions at once: one that hangs must not hide the rest.
const (
	asked    = 8
	patience = 10 * time.Second
)

// Found is a task and the session that knows it.
type Found struct {
	Session Session
	Record  task.Record
}

func (f Found) Live() bool { return f.Session.Info().Live }

// Open opens the session of the task.
func (f Found) Open(ctx context.Context) (control.API, func(), error) {
	api, done, err := f.Session.Open(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("open session %s: %w", f.Session.Info().Session, err)
	}
	return api, done, nil
}

// Reach is open for who waits for a host that stands still.
func (f Found) Reach(ctx context.Context) (control.API, func(), error) {
	api, done, err := f.Session.Reach(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("open session %s: %w", f.Session.Info().Session, err)
	}
	return api, done, nil
}

// Taken asks a session, which ask finds anew each time, until one has taken the
// question: a host that is just going does not, and what it leaves can be asked.
func Taken(ctx context.Context, ask func() (Session, error)) error {
	for losses := 0; ; losses++ {
		s, err := ask()
		if s == nil || !control.Refused(err) || losses == HostLosses || !s.Gone(ctx) {
			return err
		}
	}
}

// Each asks sessions side by side and returns the answers in their order. A
// session that does not answer in time gives an error, and only for itself.
func Each[T any](ctx context.Context, sessions []Session, ask func(context.Context, control.API) (T, error)) ([]T,
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
	Live, All bool
	ids       bool // names do not count
}

// LeastID is how many characters of an ID find a task or a session of another
// project: a slip of the finger must not.
const LeastID = 4

// SearchOrder is where a word is looked for: in the project, then everywhere, but there,
// without all, as an ID only.
func SearchOrder(word string, all bool) [][]place {
	out := [][]place{{{Live: true}, {}}}
	if all || len(word) >= LeastID && strings.Trim(word, "0123456789abcdefghijklmnopqrstuvwxyz-") == "" {
		out = append(out, []place{{Live: true, All: true, ids: !all}, {All: true, ids: !all}})
	}
	return out
}

// Resolve finds the one task that ref means: among the sessions of the project, live
// ones first, else everywhere, by its ID or with all by its name too. A name means the
// one task that lives and goes by it, else the newest that has ended.
func (a *Console) Resolve(ctx context.Context, ref string, all bool) (Found, error) {
	return a.Search(ctx, ref, slices.Concat(SearchOrder(ref, all)...))
}

func (a *Console) Search(ctx context.Context, ref string, places []place) (Found, error) {
	seen := map[task.ID]bool{}
	var problem error
	var ended *Found // goes by the name
	for i, p := range places {
		if ended != nil && p.All != places[i-1].All {
			return *ended, nil
		}
		sessions, err := a.Known(ctx, p.Live, p.All)
		if err != nil {
			return Found{}, fmt.Errorf("list sessions: %w", err)
		}
		sessions = slices.DeleteFunc(slices.Clone(sessions), func(s Session) bool { return seen[s.Info().Session] })
		if ended != nil { // what ended before it began has nothing newer
			sessions = slices.DeleteFunc(sessions, func(s Session) bool {
				return EndedBefore(s.Info().EndTime,
					ended.Record.CreateTime)
			})
		}
		f, err := pick(ctx, sessions, ref, p.ids)
		switch {
		case err == nil && ended != nil && f.Record.Name != ref:
		case err == nil && f.Record.Status.Terminal() && f.Record.Name == ref:
			if ended == nil || f.Record.CreateTime.After(ended.Record.CreateTime) {
				ended = &f
			}
		case err == nil:
			return f, nil
		}
		for _, s := range sessions {
			// A host that went away while it was asked has left something to ask.
			seen[s.Info().Session] = !HostGone(err)
		}
		var e *control.Error
		switch {
		case err == nil:
		case !errors.As(err, &e) || e.Code != control.NotFound && e.Code != control.Ambiguous:
			problem = err // a later place may know the task all the same
		case e.Code == control.Ambiguous && ended == nil:
			return Found{}, err
		}
	}
	if ended != nil {
		return *ended, nil
	}
	if problem != nil {
		return Found{}, problem
	}
	if matches := a.begins(ctx, ref); len(matches) > 0 {
		return Found{}, SeveralMatches(ref, matches)
	}
	return Found{}, &control.Error{Code: control.NotFound, Message: fmt.Sprintf("no task %q: unknown ID or name", ref),
		Fix: "see `drover ps -a`"}
}

// begins are the tasks of this project whose IDs begin with a single character, which
// sessions do not take for an ID.
func (a *Console) begins(ctx context.Context, ref string) []string {
	if len(ref) != 1 {
		return nil
	}
	records, _, _ := a.List(ctx, true, false, TablePage) // what cannot be listed is no candidate
	var out []string
	for _, r := range records {
		if strings.HasPrefix(string(r.ID), ref) {
			out = append(out, string(r.ID))
		}
	}
	return out
}

// pick finds the one task in the sessions that ref means; with ids, not by its name.
func pick(ctx context.Context, sessions []Session, ref string, ids bool) (Found, error) {
	other := func(label string) bool { return ids && !strings.HasPrefix(label, ref) }
	var hits, named []Found
	var matches []string
	var problem error
	for some := range slices.Chunk(sessions, asked) {
		records, errs := Each(ctx, some, func(ctx context.Context, api control.API) (task.Record, error) {
			return api.Get(ctx, ref)
		})
		for i, err := range errs {
			var e *control.Error
			switch {
			case err == nil && string(records[i].ID) == ref: // a whole ID is unique everywhere
				return Found{some[i], records[i]}, nil
			case err == nil && other(string(records[i].ID)):
			case err == nil && records[i].Name == ref:
				named = append(named, Found{some[i], records[i]})
			case err == nil:
				hits = append(hits, Found{some[i], records[i]})
				matches = append(matches, MatchLabel(records[i], some[i]))
			case errors.As(err, &e) && e.Code == control.Ambiguous:
				matches = append(matches, slices.DeleteFunc(e.Matches, other)...)
			case !errors.As(err, &e) || e.Code != control.NotFound:
				problem = err
			}
		}
	}
	if hit, live := Meant(named); live != nil {
		matches = live
	} else if hit != nil {
		return *hit, nil
	}
	switch {
	case len(matches) > 1:
		return Found{}, SeveralMatches(ref, matches)
	case len(hits) == 1:
		return hits[0], nil
	case problem != nil:
		return Found{}, problem
	}
	return Found{}, control.NotFoundError(ref)
}

// Meant is which of the tasks of several sessions their name means: the one that lives,
// else the newest. Of several that live it returns what tells them apart.
func Meant(named []Found) (hit *Found, live []string) {
	var lives bool
	for i, f := range named {
		switch alive := !f.Record.Status.Terminal(); {
		case alive:
			hit, lives, live = &named[i], true, append(live, MatchLabel(f.Record, f.Session))
		case !lives && (hit == nil || f.Record.CreateTime.After(hit.Record.CreateTime)):
			hit = &named[i]
		}
	}
	if len(live) < 2 {
		return hit, nil
	}
	return nil, live
}

// SessionOf finds the one session that a word means, by its ID or the beginning of it.
func SessionOf(known []Session, word string) (Session, error) {
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

func NotFound(err error) bool {
	var e *control.Error
	return errors.As(err, &e) && e.Code == control.NotFound
}

// MatchLabel names a match so that it can be told from the others.
func MatchLabel(r task.Record, s Session) string {
	if r.Name == "" {
		return string(r.ID)
	}
	return fmt.Sprintf("%s (%s, session %s)", r.ID, r.Name, s.Info().Session)
}

// ResolveAll finds the tasks of several refs, in their order.
func (a *Console) ResolveAll(ctx context.Context, refs []string, all bool) ([]Found, error) {
	out := make([]Found, 0, len(refs))
	for _, ref := range refs {
		f, err := a.Resolve(ctx, ref, all)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// BySession groups tasks by their session, in the order they first come.
func BySession(tasks []Found) [][]Found {
	var groups [][]Found
	for _, f := range tasks {
		i := slices.IndexFunc(groups, func(g []Found) bool {
			return g[0].Session.Info().Session == f.Session.Info().Session
		})
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], f)
	}
	return groups
}

func Refs(tasks []Found) []string {
	out := make([]string, len(tasks))
	for i, f := range tasks {
		out[i] = string(f.Record.ID)
	}
	return out
}

// SeveralMatches says that a word is ambiguous, and what it could mean.
func SeveralMatches(ref string, matches []string) error {
	names := matches
	if more := len(matches) - MostNamed; more > 0 {
		names = append(slices.Clone(matches[:MostNamed]), fmt.Sprintf("%d more", more))
	}
	return &control.Error{Code: control.Ambiguous, Matches: matches,
		Message: fmt.Sprintf("%q is ambiguous: it could be any of %s", ref, strings.Join(names, ", ")),
		Fix:     "give more of the ID"}
}

// OpenToResume opens the session of a task that is to go on. What a detached host has left
// that died is taken up by the next, which is started for that.
func (a *Console) OpenToResume(ctx context.Context, f Found) (control.API, func(), error) {
	if f.Live() || f.Session.Info().Role != "background" || !f.Record.Traits().Resumable {
		return f.Open(ctx)
	}
	folder, _, _, err := a.At(f.Session)
	if err != nil {
		return nil, nil, err
	}
	api, done, err := folder.Background(ctx)
	if err != nil {
		return nil, nil, err
	}
	if info, err := api.Info(ctx); err == nil && info.Session == f.Session.Info().Session {
		return api, done, nil
	}
	done()
	return f.Open(ctx) // another session is the project's now
}

func (a *Console) Infos(ctx context.Context, all bool) ([]control.Info, error) {
	sessions, err := a.Known(ctx, false, all)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	infos := make([]control.Info, len(sessions))
	for i, s := range sessions {
		infos[i] = s.Info()
	}
	return infos, nil
}

// places are the sessions of the project, or of all.
func (a *Console) SessionFolders(all bool) ([]home.Session, error) {
	projects := []home.Project{a.Root.Project(a.Cwd)}
	if all {
		var err error
		if projects, err = a.Root.Projects(); err != nil {
			return nil, err
		}
	}
	var out []home.Session
	for _, p := range projects {
		sessions, err := p.Sessions()
		if err != nil {
			return nil, err
		}
		out = append(out, sessions...)
	}
	return out, nil
}

// CalledBy are the sessions that a ref means: by their IDs, or else by what they were
// called before they were carried here.
func CalledBy(sessions []Session, ref string) []Session {
	by := func(match func(control.Info) bool) []Session {
		var out []Session
		for _, s := range sessions {
			if match(s.Info()) {
				out = append(out, s)
			}
		}
		return out
	}
	if own := by(func(i control.Info) bool { return strings.HasPrefix(string(i.Session), ref) }); len(own) > 0 {
		return own
	}
	return by(func(i control.Info) bool { return slices.Contains(i.Aliases, ref) })
}

// SeveralSessions says that a word means more than one session, and names them.
func SeveralSessions(ref string, found []Session) error {
	var ids []string
	for _, s := range found {
		ids = append(ids, string(s.Info().Session))
	}
	return SeveralMatches(ref, ids)
}

// AfterHost finds a task again whose host has gone. What is not to outlive the
// host may take a moment to end.
func (a *Console) AfterHost(ctx context.Context, f Found) (Found, error) {
	ctx, cancel := context.WithTimeout(ctx, clearing)
	defer cancel()
	tick := time.NewTicker(clearing / 50)
	defer tick.Stop()
	for {
		// A failure may be that of the moment: the next host is just opening what
		// this one left.
		again, err := a.Resolve(ctx, string(f.Record.ID), true)
		if err == nil && (again.Live() || again.Record.Status.Terminal()) {
			return again, nil
		}
		select { // nobody is left who could tell
		case <-tick.C:
		case <-ctx.Done():
			return again, err
		}
	}
}

const (
	HostLosses = 3               // how often a host may go under one who waits or follows
	clearing   = 5 * time.Second // how long the end of what it left may take; the keeper needs 2 s
)

// HostGone reports that a session stopped answering.
func HostGone(err error) bool {
	var e *control.Error
	return errors.As(err, &e) && e.Code == control.Unavailable
}
