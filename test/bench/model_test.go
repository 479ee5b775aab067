//go:build linux

package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/anthropic"
	"github.com/drover-dev/drover/internal/model/modelwire"
	"github.com/drover-dev/drover/internal/model/openai"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/test/modeltest"
)

// closing is a model that keeps connections open.
type closing interface {
	agent.Model
	Close()
}

// stream is the cost of an event of a reply, in each dialect that models speak.
func (t *bench) stream() {
	for _, d := range []struct {
		name string
		api  modeltest.API
		make func(url string) (closing, error)
	}{
		{"Messages", modeltest.Messages,
			func(url string) (closing, error) {
				return anthropic.New(anthropic.Config{Account: modelwire.Account{BaseURL: url, APIKey: "k"}})
			}},
		{"Chat Completions", modeltest.Chat,
			func(url string) (closing, error) {
				return openai.New(modelwire.Account{BaseURL: url, APIKey: "k"}, openai.Chat)
			}},
		{"Responses", modeltest.Responses,
			func(url string) (closing, error) {
				return openai.New(modelwire.Account{BaseURL: url, APIKey: "k"}, openai.Responses)
			}},
	} {
		n := t.size(50_000, 5_000)
		costs := map[int][2]float64{}
		for _, events := range []int{n / 10, n} {
			body := modeltest.Text(strings.Repeat("x", 64*events)).StreamOf(d.api, "m")
			s, err := modeltest.New(func(context.Context, *modeltest.Request) modeltest.Answer { return modeltest.Answer{Raw: body} })
			t.must(err)
			s.Keep(0)
			m, err := d.make(s.URL)
			t.must(err)
			req := &agent.Request{Model: "m", Messages: []agent.Message{agent.NewMessage(agent.User, agent.TextBlock("go"))}}
			ours, floor := turns(t.runs(5), func() float64 {
				begin := time.Now()
				_, err := m.Reply(context.Background(), req, func(agent.Part) {})
				t.must(err)
				return us(time.Since(begin)) / float64(events)
			}, func() float64 { return t.decoded(s.URL, d.api) / float64(events) })
			m.Close()
			s.Close()
			costs[events] = [2]float64{ours, floor}
		}
		t.add(row{name: fmt.Sprintf("model stream, %s, an event of %d", d.name, n), unit: "µs", ours: costs[n][0], floor: costs[n][1], of: "bare JSON decode", target: 8},
			row{name: "the same, against a tenth of the length", unit: "µs", ours: costs[n][0], floor: costs[n/10][0], of: fmt.Sprintf("an event of %d", n/10), ratio: 1.3, note: "linear: 1.00"})
	}
}

// decoded is the time in µs of a reply whose events are decoded, and no more.
func (t *bench) decoded(url string, api modeltest.API) float64 {
	body := `{"model":"m","stream":true,"messages":[]}`
	if api == modeltest.Responses {
		body = `{"model":"m","stream":true,"input":[]}`
	}
	begin := time.Now()
	res, err := http.Post(url+string(api), "application/json", strings.NewReader(body))
	t.must(err)
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok || data[0] != '{' {
			continue
		}
		var e struct {
			Type    string          `json:"type"`
			Delta   json.RawMessage `json:"delta"`
			Choices []struct {
				Delta struct {
					Content string `json:"content"`
				} `json:"delta"`
			} `json:"choices"`
		}
		t.must(json.Unmarshal(data, &e))
	}
	t.must(lines.Err())
	res.Body.Close()
	return us(time.Since(begin))
}

// summing answers at once.
type summing struct{}

func (summing) Reply(context.Context, *agent.Request, func(agent.Part)) (*agent.Reply, error) {
	return &agent.Reply{Blocks: []agent.Block{agent.TextBlock("what was said, in short")}, StopReason: "end_turn"}, nil
}

// compaction is what summing up costs beside the model.
func (t *bench) compaction() {
	n := t.size(10_000, 2_000)
	messages := make([]agent.Message, n)
	for i := range messages {
		messages[i] = said(i).Message
	}
	ours, floor := turns(t.runs(9), func() float64 {
		tr, _, err := agent.OpenTranscript(filepath.Join(t.temp(), "t.jsonl"), agent.Meta{})
		t.must(err)
		l, err := agent.NewLoop(agent.Config{Model: summing{}, Transcript: tr}, messages)
		t.must(err)
		begin := time.Now()
		t.must(l.Compact(context.Background(), ""))
		took := ms(time.Since(begin))
		if got := len(l.Messages()); got != 1 {
			t.Fatalf("%d messages are left, want 1", got)
		}
		t.must(tr.Close())
		return took
	}, func() float64 {
		begin := time.Now()
		for _, m := range messages {
			var v struct {
				Role    string        `json:"role"`
				Content []agent.Block `json:"content"`
			}
			t.must(json.Unmarshal(m.Encoded(), &v))
		}
		return ms(time.Since(begin))
	})
	t.add(row{name: fmt.Sprintf("compaction of %d messages, without the model", n), unit: "ms", ours: ours, floor: floor, of: "decoding them"})
}

// todo is one change of a list.
func (t *bench) todo() {
	const size = 100
	ctx := context.Background()
	dir := t.temp()
	list := todo.At(filepath.Join(dir, "list"), false)
	for range size {
		_, err := list.Create(ctx, todo.Draft{Subject: "one of many"})
		t.must(err)
	}
	path := filepath.Join(dir, "bare")
	data := bytes.Repeat([]byte("x"), 300)
	n := t.size(500, 100)
	ours, floor := turns(t.runs(9), func() float64 {
		return each(n, func(i int) {
			text := fmt.Sprint(i)
			_, err := list.Update(ctx, 1, todo.Patch{Description: &text})
			t.must(err)
		})
	}, func() float64 {
		return each(n, func(int) {
			t.must(os.WriteFile(path+".new", data, 0o600))
			t.must(os.Rename(path+".new", path))
		})
	})
	t.add(row{name: fmt.Sprintf("change of a to-do, in a list of %d", size), unit: "µs", ours: ours, floor: floor, of: "a file and a rename"})
}
