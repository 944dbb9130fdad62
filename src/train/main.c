/* main.c - the program cddp-train. */
int main(void)
{
    return 0;
}
