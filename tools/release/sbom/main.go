// Command sbom writes the CycloneDX bill of materials of a Go program, from what the
// program says of its own build.
//
//	sbom PROGRAM FILE
package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "sbom: %s\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want PROGRAM and FILE, got %q", args)
	}
	info, err := buildinfo.ReadFile(args[0])
	if err != nil {
		return fmt.Errorf("read the build of %s: %w", args[0], err)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{Type: cyclonedx.ComponentTypeApplication,
		Name: filepath.Base(args[0]), PackageURL: "pkg:golang/" + info.Main.Path}}
	parts := []cyclonedx.Component{
		{
			Type:       cyclonedx.ComponentTypeLibrary,
			Name:       "stdlib",
			Version:    info.GoVersion,
			PackageURL: "pkg:golang/std@" + info.GoVersion,
		},
	}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		purl := "pkg:golang/" + d.Path + "@" + d.Version
		parts = append(
			parts,
			cyclonedx.Component{
				BOMRef:     purl,
				Type:       cyclonedx.ComponentTypeLibrary,
				Name:       d.Path,
				Version:    d.Version,
				PackageURL: purl,
			},
		)
	}
	bom.Components = &parts
	f, err := os.Create(args[1])
	if err != nil {
		return err
	}
	if err := cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return fmt.Errorf("write %s: %w", args[1], err)
	}
	return f.Close()
}
