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

// Newest returns the live conversations, and the newest of all.
func (a *Console) Newest(ctx context.Context, all bool) (live []Session, last Session, err error) {
	known, err := a.Known(ctx, false, all)
	if err != nil {
		return nil, nil, err
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
		return nil, nil, Missing("this folder has no conversation", "begin one with `drover attach --new`")
	}
	return live, last, nil
}

// SeveralLive lists live sessions among which the user has to choose. command shows how.
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
			Ago(a.Now(), i.StartTime),
			Cell(folder, 40), cmp.Or(Cell(a.Running(ctx, s), 30), "-")})
	}
	if err := a.Table(rows, Headed); err != nil {
		return err
	}
	return e
}

// Running says in a few words which tasks run in a live session.
func (a *Console) Running(ctx context.Context, s Session) string {
	page, _ := Ask(ctx, s.Open, func(api control.API) (control.Page, error) {
		return api.List(ctx, control.ListRequest{Limit: TablePage})
	})
	return task.PillLabel(page.Tasks) // of none without an answer
}

// Conversing is the role of a session with a main agent.
const Conversing = "prompt"

// IsConversation reports whether a session has a main agent.
func IsConversation(i control.Info) bool { return i.Role == Conversing }

// MostNamed limits enumerations for people.
const MostNamed = 20

// Limits of requests to many sessions: one session that hangs must not hide the rest.
const (
	asked    = 8
	patience = 10 * time.Second
)

// Found is a task and the session that knows it.
type Found struct {
	Session
	Record task.Record
}

func (f Found) Live() bool { return f.Info().Live }

// Ask opens a session for one request.
func Ask[T any](
	ctx context.Context, open func(context.Context) (control.API, func(), error), do func(control.API) (T, error),
) (T, error) {
	api, done, err := open(ctx)
	if err != nil {
		var none T
		return none, err
	}
	defer done()
	return do(api)
}

// Taken repeats a request until a session accepts it. ask finds the session each time: a host that is
// ending refuses requests, and then its files or the next host answer.
func Taken(ctx context.Context, ask func() (Session, error)) error {
	for losses := 0; ; losses++ {
		s, err := ask()
		if s == nil || !control.Refused(err) || losses == HostLosses || !s.Gone(ctx) {
			return err
		}
	}
}

// Each asks sessions in parallel and returns the answers in their order. A session that does not
// answer in time has an error, and the others have answers.
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
			if err != nil {
				errs[i] = err
				return
			}
			defer done()
			if answers[i], err = ask(ctx, api); err != nil {
				errs[i] = fmt.Errorf("ask session %s: %w", s.Info().Session, err)
			}
		})
	}
	group.Wait()
	return answers, errs
}

// place says where a word is looked up.
type place struct {
	Live, All bool
	ids       bool // names do not count
}

// LeastID is the number of characters of an ID that find a task or a session of another project. A
// typing error must not find one.
const LeastID = 4

// SearchOrder returns where a word is looked up: in the project, then everywhere, but there, without
// all, as an ID only.
func SearchOrder(word string, all bool) [][]place {
	out := [][]place{{{Live: true}, {}}}
	if all || len(word) >= LeastID && strings.Trim(word, "0123456789abcdefghijklmnopqrstuvwxyz-") == "" {
		out = append(out, []place{{Live: true, All: true, ids: !all}, {All: true, ids: !all}})
	}
	return out
}

// Resolve returns the task that a word means: among the sessions of the project, live ones first, else
// everywhere, by its ID or with all also by its name. A name means the live task that has it, else the
// newest ended one.
func (a *Console) Resolve(ctx context.Context, ref string, all bool) (Found, error) {
	return a.Search(ctx, ref, slices.Concat(SearchOrder(ref, all)...))
}

func (a *Console) Search(ctx context.Context, ref string, places []place) (Found, error) {
	seen := map[task.ID]bool{}
	var problem error
	var ended *Found // has the name
	for i, p := range places {
		if ended != nil && p.All != places[i-1].All {
			return *ended, nil
		}
		sessions, err := a.Known(ctx, p.Live, p.All)
		if err != nil {
			return Found{}, err
		}
		sessions = slices.DeleteFunc(slices.Clone(sessions), func(s Session) bool { return seen[s.Info().Session] })
		if ended != nil { // sessions that ended before it have nothing newer
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
			// A host that ended meanwhile has left files that can be asked.
			seen[s.Info().Session] = !HostGone(err)
		}
		var e *control.Error
		switch {
		case err == nil:
		case !errors.As(err, &e) || e.Code != control.NotFound && e.Code != control.Ambiguous:
			problem = err // a later place may still know the task
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
	return Found{}, Missing(fmt.Sprintf("no task %q: unknown ID or name", ref), "see `drover ps -a`")
}

// begins returns the tasks of this project whose IDs begin with a single character. Sessions do not
// accept one character as an ID.
func (a *Console) begins(ctx context.Context, ref string) []string {
	if len(ref) != 1 {
		return nil
	}
	records, _, _ := a.List(ctx, true, false, TablePage) // unlisted tasks are not candidates
	var out []string
	for _, r := range records {
		if strings.HasPrefix(string(r.ID), ref) {
			out = append(out, string(r.ID))
		}
	}
	return out
}

// pick returns the one task of the sessions that ref means; with ids, by its ID only.
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
				matches = append(matches, matchLabel(records[i], some[i]))
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
		return Found{}, SeveralMatches(ref, matches)
	case len(hits) == 1:
		return hits[0], nil
	case problem != nil:
		return Found{}, problem
	}
	return Found{}, control.NotFoundError(ref)
}

// meant returns the task of several sessions that their common name means: the live one, else the
// newest. For several live ones it returns labels that distinguish them.
func meant(named []Found) (hit *Found, live []string) {
	var lives bool
	for i, f := range named {
		switch alive := !f.Record.Status.Terminal(); {
		case alive:
			hit, lives, live = &named[i], true, append(live, matchLabel(f.Record, f.Session))
		case !lives && (hit == nil || f.Record.CreateTime.After(hit.Record.CreateTime)):
			hit = &named[i]
		}
	}
	if len(live) < 2 {
		return hit, nil
	}
	return nil, live
}

// PickSession returns the one session that a word means: by its ID, by the beginning of its ID, or by
// the ID that it had before it was imported.
func PickSession(known []Session, word string) (Session, error) {
	var same, begins, aliased []Session
	for _, s := range known {
		switch i := s.Info(); {
		case string(i.Session) == word:
			same = append(same, s)
		case word != "" && strings.HasPrefix(string(i.Session), word):
			begins = append(begins, s)
		case slices.Contains(i.Aliases, word):
			aliased = append(aliased, s)
		}
	}
	for _, hits := range [][]Session{same, begins, aliased} {
		switch {
		case len(hits) == 1:
			return hits[0], nil
		case len(same) > 1: // the user chose the ID twice
			return nil, control.Refuse(control.Ambiguous,
				fmt.Sprintf("%s is a session of %s and of %s", word, same[0].Info().Project, same[1].Info().Project),
				"go to the folder, and leave out --all-sessions")
		case len(hits) > 1:
			ids := make([]string, len(hits))
			for i, s := range hits {
				ids[i] = string(s.Info().Session)
			}
			return nil, SeveralMatches(word, ids)
		}
	}
	return nil, Missing(fmt.Sprintf("no session %q", word), "see `drover sessions --all-sessions`")
}

// FindSession returns the session that a word means: of this folder, else of any folder by at least
// [LeastID] characters.
func (a *Console) FindSession(ctx context.Context, word string) (s Session, err error) {
	for _, all := range []bool{false, true} {
		known, listed := a.Known(ctx, false, all)
		if listed != nil {
			return nil, listed
		}
		if s, err = PickSession(known, word); !NotFound(err) || len(word) < LeastID {
			return s, err
		}
	}
	return s, err
}

func NotFound(err error) bool {
	var e *control.Error
	return errors.As(err, &e) && e.Code == control.NotFound
}

// matchLabel distinguishes a match from others.
func matchLabel(r task.Record, s Session) string {
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
			return g[0].Info().Session == f.Info().Session
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

// SeveralMatches is the error of an ambiguous word, with its meanings.
func SeveralMatches(ref string, matches []string) error {
	names := matches
	if more := len(matches) - MostNamed; more > 0 {
		names = append(slices.Clone(matches[:MostNamed]), fmt.Sprintf("%d more", more))
	}
	return &control.Error{Code: control.Ambiguous, Matches: matches,
		Message: fmt.Sprintf("%q is ambiguous: it could be any of %s", ref, strings.Join(names, ", ")),
		Fix:     "give more of the ID"}
}

// OpenToResume opens the session of a task that shall continue. If the detached host of the session has
// died, the next one is started, which resumes the session.
func (a *Console) OpenToResume(ctx context.Context, f Found) (control.API, func(), error) {
	if f.Live() || f.Info().Role != "background" || !f.Record.Traits().Resumable {
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
	if info, err := api.Info(ctx); err == nil && info.Session == f.Info().Session {
		return api, done, nil
	}
	done()
	return f.Open(ctx) // the project has another session now
}

func (a *Console) Infos(ctx context.Context, all bool) ([]control.Info, error) {
	sessions, err := a.Known(ctx, false, all)
	if err != nil {
		return nil, err
	}
	infos := make([]control.Info, len(sessions))
	for i, s := range sessions {
		infos[i] = s.Info()
	}
	return infos, nil
}

// SessionFolders returns the sessions of the project, or of all projects.
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

// HostLosses is how often a host may end under a command that waits or follows.
const HostLosses = 3

// HostGone reports that a session stopped answering.
func HostGone(err error) bool {
	var e *control.Error
	return errors.As(err, &e) && e.Code == control.Unavailable
}
