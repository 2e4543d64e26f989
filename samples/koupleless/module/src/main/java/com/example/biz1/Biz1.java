package com.example.biz1;

import java.util.Arrays;

/** The base calls main with the container's args, on a class loader of the module's own, and waits for it to return. */
public final class Biz1 {
    private Biz1() {}

    public static void main(String[] args) {
        System.out.println("[biz=biz1] started with " + Arrays.toString(args));
    }
}
