package agentsdk

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/drover-dev/drover/test/modeltest"
)

// TestFigures measures one prompt through the SDK with this binary, and with another
// executable in the same run where AGENTSDK_OTHER names one:
//
//	AGENTSDK_FIGURES=9 AGENTSDK_OTHER=/path/to/claude go test ./test/agentsdk -run TestFigures -v
//
// The model is a server on loopback that answers at once.
func TestFigures(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("AGENTSDK_FIGURES"))
	if err != nil || rounds <= 0 {
		t.Skip("AGENTSDK_FIGURES is no number of rounds: it takes a minute and asserts nothing but the answers")
	}
	dir, err := sdk()
	if err != nil {
		t.Skipf("SKIPPED LOUDLY: the official Agent SDK could not be installed: %v", err)
	}
	os.Setenv("AGENTSDK_USED", "1")
	programs := map[string]string{"drover": filepath.Join(dir, "drover")}
	if other := os.Getenv("AGENTSDK_OTHER"); other != "" {
		programs["other"] = other
	}
	figures := map[string][]float64{}
	for range rounds {
		for name, program := range programs {
			for what, value := range figure(t, dir, program) {
				figures[what+" "+name] = append(figures[what+" "+name], value)
			}
		}
	}
	names := make([]string, 0, len(figures))
	for name := range figures {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		all := figures[name]
		sort.Float64s(all)
		t.Logf("%-40s median %8.0f   least %8.0f   most %8.0f", name, all[len(all)/2], all[0], all[len(all)-1])
	}
}

// figure is what one prompt costs with a program.
func figure(t *testing.T, dir, program string) map[string]float64 {
	t.Helper()
	server, err := modeltest.New(func(context.Context, *modeltest.Request) modeltest.Answer { return modeltest.Text("hello") })
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	home, folder := t.TempDir(), t.TempDir()
	cmd := exec.CommandContext(t.Context(), "node", "cases.mjs", "figures", program, "claude-sonnet-4-5-20250929", folder)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_STATE_HOME="+home, "XDG_RUNTIME_DIR="+home,
		"ANTHROPIC_BASE_URL="+server.URL, "ANTHROPIC_API_KEY=sk-ant-fake", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1", "DISABLE_ERROR_REPORTING=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		stderr, _ := os.ReadFile(filepath.Join(folder, "stderr"))
		t.Fatalf("%s: %v\n%s\n%s\n%s", program, err, out.Bytes(), short(errs.String()), stderr)
	}
	got := map[string]float64{}
	for line := range strings.Lines(out.String()) {
		var f struct {
			What  string
			Value json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatal(err)
		}
		var n float64
		var peak struct {
			Process float64
			All     float64 `json:"with_children"`
		}
		switch {
		case f.What == "answer" && string(f.Value) != `"success: hello"`:
			t.Errorf("%s answered %s", program, f.Value)
		case f.What == "peak_kib" && json.Unmarshal(f.Value, &peak) == nil:
			got["peak KiB of the process"], got["peak KiB with its children"] = peak.Process, peak.All
		case json.Unmarshal(f.Value, &n) == nil:
			got[f.What] = n
		}
	}
	got["requests"] = float64(server.Count())
	if all := server.Requests(); len(all) > 0 {
		first := all[0]
		for _, r := range all { // of several at the beginning the one with the tools
			if len(r.Body) > len(first.Body) {
				first = r
			}
		}
		got["bytes of the first whole request"] = float64(len(first.Body))
	}
	return got
}
