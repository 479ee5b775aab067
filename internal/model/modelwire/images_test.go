package modelwire_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/png"
	"regexp"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/picture"
	"github.com/drover-dev/drover/test/modeltest"
	"github.com/drover-dev/drover/test/waittest"
)

func imageBlock(t *testing.T, w, h int) agent.Block {
	t.Helper()
	var out bytes.Buffer
	if err := png.Encode(&out, image.NewGray(image.Rect(0, 0, w, h))); err != nil {
		t.Fatal(err)
	}
	return agent.Block{Type: "image", Source: picture.Source(out.Bytes(), "image/png")}
}

// cut is an image that ends early.
func cut(b agent.Block) json.RawMessage {
	data, kind, _ := picture.Content(b.Source)
	return picture.Source(data[:60], kind)
}

// Images in a prompt and in a result are sent within the limits of the provider: as they are,
// scaled, or as a text that says why they are missing.
func TestImagesFit(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		m, s := d.asked(t, modeltest.Text("ok"))
		damaged := agent.Block{Type: "image", Source: cut(imageBlock(t, 9000, 90))}
		req := request("look")
		call := modeltest.ToolUse("toolu_1", "Bash", map[string]any{})
		content, err := json.Marshal([]agent.Block{agent.TextBlock("two"), imageBlock(t, 9000, 90), damaged})
		if err != nil {
			t.Fatal(err)
		}
		req.Messages = []agent.Message{
			agent.NewMessage(agent.User, agent.TextBlock("look"), imageBlock(t, 40, 3000), imageBlock(t, 20, 10)),
			agent.NewMessage(agent.Assistant, call),
			agent.NewMessage(agent.User, agent.Block{Type: "tool_result", ToolUseID: "toolu_1", Content: content}),
		}
		if _, err := m.Reply(waittest.Context(t, patience), req, nil); err != nil {
			t.Fatal(err)
		}
		body := string(s.Requests()[0].Body)
		var sizes []image.Point
		for _, found := range regexp.MustCompile(`iVBOR[A-Za-z0-9+/=]+`).FindAllString(body, -1) {
			data, err := base64.StdEncoding.DecodeString(found)
			if err != nil {
				t.Fatal(err)
			}
			size, err := picture.Size(data, "image/png")
			if err != nil {
				t.Fatal(err)
			}
			sizes = append(sizes, size)
		}
		want := []image.Point{{26, 2000}, {20, 10}, {2000, 20}}
		if len(sizes) != 3 || sizes[0] != want[0] || sizes[1] != want[1] || sizes[2] != want[2] {
			t.Errorf("the provider got %v, want %v", sizes, want)
		}
		if !strings.Contains(body, "[image left out: ") {
			t.Error("the provider got no word of the damaged image")
		}
	})
}
