package session

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// relaying is a model that passes on what it is told to: "pass N to NAME" makes a
// message "word N" to NAME by a call with the ID toolu_N.
func relaying(_ context.Context, q *modeltest.Request) modeltest.Answer {
	orders := regexp.MustCompile(`pass (\d+) to (\w+)`).FindAllStringSubmatch(q.LastText(), -1)
	if len(orders) == 0 {
		return text("ok")
	}
	var a modeltest.Answer
	for _, o := range orders {
		a.Blocks = append(a.Blocks, modeltest.ToolUse("toolu_"+o[1], "SendMessage", map[string]any{"to": o[2], "message": "word " + o[1]}))
	}
	return a
}

// heard is how often each word stands in what an agent was given to read, and sent
// the words that it has passed on.
func (r *testSession) heard(t *rapid.T, id task.ID) (heard map[string]int, sent []string) {
	records, err := agent.Tail(r.cfg.Place.AgentTranscript(id), math.MaxInt)
	if err != nil {
		t.Fatal(err)
	}
	heard = map[string]int{}
	for _, rec := range records {
		blocks, err := rec.Message.Blocks()
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			for _, m := range regexp.MustCompile(`word (\d+)`).FindAllStringSubmatch(b.Text, -1) {
				heard[m[1]]++
			}
			var result string
			if _ = json.Unmarshal(b.Content, &result); b.Type == "tool_result" && !b.IsError && strings.HasPrefix(result, "Sent to") {
				sent = append(sent, strings.TrimPrefix(b.ToolUseID, "toolu_"))
			}
		}
	}
	return heard, sent
}

// TestTeamHistory plays any course of two teammates and their leader who write to
// each other while the session ends and is opened again: whatever a sender was told
// is sent is read by its receiver, once.
func TestTeamHistory(t *testing.T) {
	if err := flag.Set("rapid.checks", "12"); err != nil { // each opens sessions on disk
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		r, _ := served(t, relaying, func(c *Config) { c.Options.Limits.MessageHops = 1000 })
		defer r.close()
		ids := map[string]task.ID{"ada": r.enlist("ada", "crew", "begin").ID, "bob": r.enlist("bob", "crew", "begin").ID}
		other := map[string]string{"ada": "bob", "bob": "ada"}
		want := map[string][]string{}   // that must be heard, by receiver
		passed := map[string][]string{} // that may be, by the one who passes them on
		n := 0
		pick := rapid.SampledFrom([]string{"ada", "bob"})
		rt.Repeat(map[string]func(*rapid.T){
			"tell": func(rt *rapid.T) {
				to := pick.Draw(rt, "to")
				n++
				if _, err := r.Send(r.ctx, control.SendRequest{Ref: to, Text: fmt.Sprintf("word %d", n), Env: r.cfg.Agents.Env}); err != nil {
					rt.Fatal(err)
				}
				want[to] = append(want[to], fmt.Sprint(n))
			},
			"pass": func(rt *rapid.T) {
				by := pick.Draw(rt, "by")
				n++
				if _, err := r.Send(r.ctx, control.SendRequest{Ref: by, Text: fmt.Sprintf("pass %d to %s", n, other[by]), Env: r.cfg.Agents.Env}); err != nil {
					rt.Fatal(err)
				}
				passed[by] = append(passed[by], fmt.Sprint(n))
			},
			"restart": func(*rapid.T) { r.reopen() },
			"wait": func(rt *rapid.T) {
				r.idle(ids[pick.Draw(rt, "for")])
			},
		})
		for _, who := range slices.Sorted(maps.Keys(ids)) { // a message wakes or resumes each, so that it reads all
			if _, err := r.Send(r.ctx, control.SendRequest{Ref: who, Text: "that is all", Env: r.cfg.Agents.Env}); err != nil {
				rt.Fatal(err)
			}
		}
		for { // until nobody has anything left to read
			committed := r.NextCommit()
			busy := false
			for _, id := range ids {
				busy = busy || !r.mail.Waits(r.tree.Latest(id))
			}
			if !busy {
				break
			}
			select {
			case <-committed:
			case <-r.ctx.Done():
				rt.Fatal(context.Cause(r.ctx))
			}
		}
		for who, id := range ids {
			heard, _ := r.heard(rt, id)
			_, sent := r.heard(rt, ids[other[who]])
			for _, word := range slices.Concat(want[who], sent) {
				if heard[word] != 1 {
					rt.Fatalf("%s has heard %s %d times", who, word, heard[word])
				}
			}
			for word, times := range heard {
				if times != 1 || !slices.Contains(want[who], word) && !slices.Contains(passed[other[who]], word) {
					rt.Fatalf("%s has heard %s %d times", who, word, times)
				}
			}
		}
	})
}
