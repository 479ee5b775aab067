package cli

import (
	"fmt"
	"strings"

	"github.com/drover-dev/drover/task"
)

// Pill is what runs in the background, in a few words; empty: nothing. Tasks of
// one kind are counted by its name, shells and monitors apart from each other, and
// any other mixture together.
func Pill(records []task.Record) string {
	n := map[task.Kind]int{}
	teams := map[string]bool{}
	all := 0
	for _, r := range records {
		if !r.Background() || r.AgentType == task.MainSession {
			continue
		}
		all++
		n[r.Kind]++
		if r.Team != nil {
			teams[r.Team.Team] = true
		}
	}
	switch {
	case all == 0:
		return ""
	case all == n[task.LocalBash]+n[task.MonitorMCP]:
		var parts []string
		for _, k := range []task.Kind{task.LocalBash, task.MonitorMCP} {
			if n[k] > 0 {
				parts = append(parts, named(k, n[k]))
			}
		}
		return strings.Join(parts, ", ")
	case len(n) > 1:
		return several(all, "background task")
	case n[task.InProcessTeammate] > 0:
		return several(max(1, len(teams)), "team")
	}
	for k := range n {
		return named(k, all)
	}
	return ""
}

// named counts tasks of one kind.
func named(k task.Kind, n int) string {
	switch k {
	case task.LocalBash:
		return several(n, "shell")
	case task.MonitorMCP:
		return several(n, "monitor")
	case task.LocalAgent:
		return several(n, "local agent")
	case task.LocalWorkflow:
		return several(n, "background workflow")
	case task.RemoteAgent:
		return "◇ " + several(n, "cloud session")
	case task.Dream:
		return "dreaming"
	}
	return several(n, "background task")
}

func several(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
