package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/internal/agentenv/usage"
	"github.com/drover-dev/drover/internal/frontend/web"
)

// pageUsed yields the calls of models that the sessions of all projects have kept. A call whose
// price was not known when it was made is priced by what the settings say now.
func (b *backend) pageUsed(ctx context.Context, since time.Time, yield func(web.Call)) error {
	set, err := b.Settings("")
	if err != nil {
		return err
	}
	own := map[string]usage.Price{}
	for pattern, p := range set.Models.Prices {
		own[pattern] = usage.Price(p)
	}
	table, _ := usage.NewTable(own, set.Models.Windows) // drover models tells what is wrong with it
	projects, err := b.root.Projects()
	if err != nil {
		return err
	}
	unread := 0
	for _, p := range projects {
		sessions, err := p.Sessions()
		if err != nil {
			return err
		}
		for _, s := range sessions {
			if err := ctx.Err(); err != nil {
				return err
			}
			skipped, err := usage.Read(filepath.Join(s.Dir(), usage.FileName), func(c usage.Call) {
				if c.Time.Before(since) {
					return
				}
				if usd, known := table.Cost(c.Model, c.Usage); c.USD == nil && known {
					c.USD = &usd
				}
				yield(web.Call{Time: c.Time, Model: c.Model, Input: c.InputTokens + c.CacheReadTokens + c.CacheWriteTokens,
					Output: c.OutputTokens, USD: c.USD})
			})
			if err != nil || skipped > 0 {
				unread++
			}
		}
	}
	if unread > 0 {
		return fmt.Errorf("the calls of %d sessions cannot be read in full (drover stats names them)", unread)
	}
	return nil
}
