/* lstm_op.h - what the LSTM has on every device: its parameters, and how many gates a unit has. */
#ifndef CDDPI_NN_OPS_LSTM_H
#define CDDPI_NN_OPS_LSTM_H

/* Parameters in the reverse of the order in which backward completes them; registered as nn.LSTM
 * has them. */
enum cddpi_lstm_param {
    CDDPI_LSTM_WEIGHT_HH,
    CDDPI_LSTM_WEIGHT_IH,
    CDDPI_LSTM_BIAS_IH,
    CDDPI_LSTM_BIAS_HH
};
enum { CDDPI_LSTM_GATES = 4 };

#endif
