/* ill_cards.h - the GPUs of this machine that are left out since they are ill, and those that ranks
 * get instead. Does no I/O: replace_card.c asks the driver and tells the user. */
#ifndef CDDPI_LAUNCHER_ILL_CARDS_H
#define CDDPI_LAUNCHER_ILL_CARDS_H

#include "launcher/supervise/rank_gpus.h"

enum { CDDPI_CARD_NAME_BYTES = 48, CDDPI_CARD_FAULT_BYTES = 400 };

/* A card that a rank has reported. */
struct cddpi_ill_card {
    char name[CDDPI_CARD_NAME_BYTES]; /* unique, such as "GPU-0a1b..." */
    char fault[CDDPI_CARD_FAULT_BYTES];
    int index; /* among the cards that ranks saw before any was left out */
    int seen;  /* so many cards did the rank see; 0: not known */
    int rank;
    bool is_out;      /* no further rank gets it */
    bool is_used_yet; /* a rank has reported it after that: its program chooses its card itself */
};

/* Zeroed at the job's start. */
struct cddpi_ill_cards {
    struct cddpi_ill_card list[CDDPI_MACHINE_GPUS];
    int count;
    /* The cards that ranks get, in the order of local ranks; spares come last. Not known before the
     * first card is left out. */
    char left[CDDPI_MACHINE_GPUS][CDDPI_CARD_NAME_BYTES];
    int left_count;
    /* The cards that ranks got before the first was left out, in their order. */
    char first[CDDPI_MACHINE_GPUS][CDDPI_CARD_NAME_BYTES];
    int first_count;
    bool is_known;  /* `left` and `first` are */
    bool is_shared; /* there were fewer cards than ranks, so ranks share them */
    bool is_silent; /* the driver did not say which cards remain: none is in `left` */
    bool must_end;  /* a rank has used a card that is left out: no rank gets a card any more */
};

/** A rank reports the card "NAME/SEEN FAULT", which anyone may have written. @p index: its number
 *  among the SEEN cards that the rank sees. */
void cddpi_ill_cards_take(struct cddpi_ill_cards *cards, int rank, int index, const char *text,
                          size_t bytes);

/** Whether cards were reported that are not left out yet, or are used although they are. */
bool cddpi_ill_cards_are_new(const struct cddpi_ill_cards *cards);

/** Write the CUDA_VISIBLE_DEVICES with which the driver is asked for the cards that remain, so that
 *  it leaves the ill ones alone.
 *  @param inherited  cddp-run's own CUDA_VISIBLE_DEVICES; NULL: it is not set.
 *  @return how many cards it names; 0: they cannot be told from the ill ones, or there are none. */
int cddpi_ill_cards_to_ask(struct cddpi_ill_cards *cards, const char *inherited, int ranks,
                           char *out, size_t bytes);

/** Leave out all cards that were reported. A rank whose card is not among them keeps it.
 *  @param found  The names of the cards that the driver finds, each with a newline: what ranks
 *                would see if no card were left out.
 *  @param ranks  Of this machine.
 *  @return how many of the ranks can have a card. */
int cddpi_ill_cards_leave_out(struct cddpi_ill_cards *cards, const char *found, int ranks);

/** How many of @p ranks ranks of this machine can have a card, as far as that is known. */
int cddpi_ill_cards_serve(const struct cddpi_ill_cards *cards, int ranks);

/** Write CUDA_VISIBLE_DEVICES for the ranks. Returns false if they get what cddp-run got. */
bool cddpi_ill_cards_visible(const struct cddpi_ill_cards *cards, char *out, size_t bytes);

#endif
