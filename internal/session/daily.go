package session

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/session/daily"
	"github.com/drover-dev/drover/task"
)

const (
	summaryTasks   = 5000 // that a summary looks at, the newest
	maxSummaryFile = 1 << 10
)

// newDaily returns what tells the user once a day of what the background session did, or nil in
// another session.
func (s *Session) newDaily() *daily.Teller {
	if s.cfg.Info.Role != RoleBackground {
		return nil
	}
	p := s.cfg.Place.Project()
	fail := func(err error) { s.report.Say(s.cfg.Info.Session, "daily summary: "+err.Error()) }
	store := func(at time.Time) error {
		return p.Root().WriteAtomic(p.SummaryFile(), []byte(at.UTC().Format(time.RFC3339)+"\n"))
	}
	last := s.cfg.Info.StartTime
	data, err := p.Root().ReadFile(p.SummaryFile(), maxSummaryFile)
	if err == nil {
		last, err = time.Parse(time.RFC3339, strings.TrimSpace(string(data)))
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			fail(err)
		}
		last = s.cfg.Info.StartTime
		if err := store(last); err != nil { // the next host would begin again with itself
			fail(err)
		}
	}
	return daily.New(daily.Config{Last: last, Store: store, Fail: fail,
		Tasks: func(ctx context.Context) ([]task.Record, error) {
			page, err := s.List(ctx, control.ListRequest{All: true, Limit: summaryTasks})
			return page.Tasks, err
		},
		Tell: func(ctx context.Context, text string) {
			s.report.Say(s.cfg.Info.Session, text)
			s.agents.Notify(ctx, "daily_summary", "Drover in "+p.Folder(), text)
		}})
}
