package web

import (
	"fmt"
	"strings"

	"rsc.io/qr"
)

const quietZone = 4 // light modules around a code

// qrOf encodes a text. dark reports whether a module is dark, and accepts any coordinates.
func qrOf(text string) (size int, dark func(x, y int) bool, err error) {
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return 0, nil, fmt.Errorf("encode %d bytes as a QR code: %w", len(text), err)
	}
	return code.Size + 2*quietZone, func(x, y int) bool { return code.Black(x-quietZone, y-quietZone) }, nil
}

// QRText is a text as a QR code for a terminal, two modules in each character, dark on light in every theme.
func QRText(text string) (string, error) {
	size, dark, err := qrOf(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for y := 0; y < size; y += 2 {
		b.WriteString("\x1b[30;107m")
		for x := range size {
			switch up, down := dark(x, y), dark(x, y+1); {
			case up && down:
				b.WriteRune('█')
			case up:
				b.WriteRune('▀')
			case down:
				b.WriteRune('▄')
			default:
				b.WriteByte(' ')
			}
		}
		b.WriteString("\x1b[0m\n")
	}
	return b.String(), nil
}

// drawnQR is a QR code as a drawing for the page.
type drawnQR struct {
	Size int
	Path string // of the dark modules
}

func qrDrawn(text string) (drawnQR, error) {
	size, dark, err := qrOf(text)
	if err != nil {
		return drawnQR{}, err
	}
	var b strings.Builder
	for y := range size {
		for x := range size {
			if dark(x, y) {
				fmt.Fprintf(&b, "M%d %dh1v1h-1z", x, y)
			}
		}
	}
	return drawnQR{size, b.String()}, nil
}
