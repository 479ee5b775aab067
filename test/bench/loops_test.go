//go:build linux

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/anthropic"
	"github.com/drover-dev/drover/internal/model/modelwire"
	"github.com/drover-dev/drover/internal/model/script"
	"github.com/drover-dev/drover/test/modeltest"
)

// loopsVariable makes this program run many agents and nothing else: their
// memory is to be counted without that of the table. It holds the number of
// turns of each, where their transcripts go, and the model server or nothing.
const loopsVariable = "BENCH_LOOPS"

const loopAgents = 300

// echo is a tool that costs nothing.
type echo struct{}

func (echo) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: "Echo", Description: "Echoes", InputSchema: json.RawMessage(`{"type":"object"}`)}
}

func (echo) Call(context.Context, agent.Call) (agent.Output, error) {
	return agent.Output{Text: strings.Repeat("r", 1000)}, nil
}

// loops runs the agents and returns the exit code.
func loops() int {
	var turns int
	var dir, server string
	if n, _ := fmt.Sscan(os.Getenv(loopsVariable), &turns, &dir, &server); n < 2 {
		return 2
	}
	var model agent.Model
	var err error
	if server == "" {
		model, err = script.Parse("s.yaml", fmt.Appendf(nil, "version: 1\nagents:\n  '*':\n    - {tools: [{name: Echo, input: {a: %s, n: '{{turn}}'}}], repeat: %d}\n    - {text: end}\n",
			strings.Repeat("w", 1000), turns-1))
	} else {
		model, err = anthropic.New(anthropic.Config{Account: modelwire.Account{BaseURL: server, APIKey: "k"}})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var all sync.WaitGroup
	errs := make([]error, loopAgents)
	begin := time.Now()
	for i := range loopAgents {
		all.Go(func() { errs[i] = loop(model, filepath.Join(dir, fmt.Sprint(i)), turns) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	fmt.Println(float64(loopAgents*turns) / time.Since(begin).Seconds())
	return 0
}

func loop(model agent.Model, path string, turns int) error {
	t, _, err := agent.OpenTranscript(path, agent.Meta{})
	if err != nil {
		return err
	}
	defer t.Close()
	l, err := agent.NewLoop(agent.Config{Model: model, ModelName: "m", Tools: []agent.Tool{echo{}}, Transcript: t, MaxTurns: turns, AgentID: filepath.Base(path)}, nil)
	if err != nil {
		return err
	}
	res, err := l.Turn(context.Background(), agent.TextBlock("go"))
	if err == nil && res.Turns != turns {
		err = fmt.Errorf("%d turns, want %d", res.Turns, turns)
	}
	return err
}

func (t *bench) loopRows() {
	turns := t.size(500, 60)
	web := t.serve(func(_ string, n int, _ *modeltest.Request) modeltest.Answer {
		if n == turns-1 {
			return modeltest.Text("end")
		}
		return modeltest.Call("Echo", map[string]any{"a": strings.Repeat("w", 1000), "n": n})
	})
	defer web.Close()
	for _, kind := range []struct {
		name, server string
		target       float64
	}{{"`script` model", "", 3000}, {"over HTTP", web.URL, 1000}} {
		count := turns
		if kind.server != "" {
			count = t.size(100, 20)
			turns = count
		}
		dir := t.temp()
		exe, err := os.Executable()
		t.must(err)
		out := filepath.Join(dir, "rate")
		env := t.env(dir, fmt.Sprintf("%s=%d %s %s", loopsVariable, count, dir, kind.server))
		s := t.run(dir, env, "bash", "-c", `exec "$0" > "$1"`, exe, out)
		data, err := os.ReadFile(out)
		t.must(err)
		var rate float64
		_, err = fmt.Sscan(string(data), &rate)
		t.must(err)
		name := fmt.Sprintf("%d agents × %d turns, %s", loopAgents, count, kind.name)
		t.add(row{name: name, unit: "turns/s", ours: rate, target: kind.target, least: true},
			row{name: name + ", peak memory", unit: "MiB", ours: s.peak, target: 350, note: "1 KB messages"})
		t.must(os.RemoveAll(dir))
	}
}
