package web

import (
	"net/http"
	"strings"
	"testing"

	"rsc.io/qr"
)

// TestQR draws every module of the code where it belongs, with the light border that readers need.
func TestQR(t *testing.T) {
	link := "https://drover.example" + linkPath("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
	code, err := qr.Encode(link, qr.M)
	if err != nil {
		t.Fatal(err)
	}
	text, err := QRText(link)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]bool
	for line := range strings.Lines(text) {
		line, ok := strings.CutPrefix(strings.TrimSuffix(line, "\x1b[0m\n"), "\x1b[30;107m")
		if !ok {
			t.Fatalf("a line has other colours: %q", line)
		}
		up, down := []bool{}, []bool{}
		for _, r := range line {
			up, down = append(up, r == '█' || r == '▀'), append(down, r == '█' || r == '▄')
		}
		rows = append(rows, up, down)
	}
	for y, row := range rows {
		if len(row) != code.Size+8 {
			t.Fatalf("row %d has %d modules", y, len(row))
		}
		for x, dark := range row {
			if dark != code.Black(x-4, y-4) {
				t.Fatalf("module %d, %d is dark: %t", x, y, dark)
			}
		}
	}
	if len(rows) < code.Size+8 {
		t.Errorf("%d rows", len(rows))
	}
}

// TestLinkCode gives a page a code of a link for another device, at the address that the page has.
func TestLinkCode(t *testing.T) {
	s, url := page(t, "drover.example")
	auth := map[string]string{"Authorization": "Bearer " + token, "Origin": url}
	status, text, _ := asks(t, http.MethodPost, url+"/link", `{"read_only":true}`, auth)
	if status != http.StatusOK || !strings.Contains(text, `\u003cpath`) {
		t.Fatalf("%d: %s", status, text)
	}
	if strings.Contains(text, s.Token) {
		t.Error("the link has a key")
	}
}
