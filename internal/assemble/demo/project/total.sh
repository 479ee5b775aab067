#!/bin/sh
# Prints the sum of an order on stdin. Each line is one item: NAME COUNT PRICE.
sum=0
while read -r name count price; do
	sum=$((sum + count * price))
done
echo "$sum"
