package pando_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	pando "github.com/pandovm/pando/sdk"
)

func ExampleVMs_Command() {
	client, err := pando.New(pando.Options{APIKey: os.Getenv("PANDO_API_KEY")})
	if err != nil {
		log.Fatal(err)
	}
	out, err := client.VMs.Command("web", "uname", "-sr").Output(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", out)
}

func ExampleCmd() {
	client, err := pando.New(pando.Options{APIKey: os.Getenv("PANDO_API_KEY")})
	if err != nil {
		log.Fatal(err)
	}
	cmd := client.VMs.Shell("web", "sort | uniq -c")
	cmd.Stdin = strings.NewReader("b\na\nb\n")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
